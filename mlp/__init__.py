"""The Django project: settings, URLs, servers, and the pages that belong to no single app."""
