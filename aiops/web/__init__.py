"""Pages, REST calls and Opni's own paths of AIOps."""
