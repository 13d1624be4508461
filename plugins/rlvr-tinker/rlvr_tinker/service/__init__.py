"""Client of a Tinker service: sessions, model specs, deadlines, errors, tokens used."""
