"""The APP-manager and the APP-Gateway: models deployed behind one entrance."""
