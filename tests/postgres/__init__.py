"""What only PostgreSQL can get wrong: other sessions, lost connections, isolation, plans, notifications."""
