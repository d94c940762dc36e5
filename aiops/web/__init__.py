"""Pages, REST calls and Opni's own paths for everything AIOps does."""
