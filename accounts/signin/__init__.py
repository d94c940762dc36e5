"""Sign-in beside the platform's own passwords: OpenID Connect, LDAP, second factors, forgotten passwords."""
