"""What a verification found, in detail: tests, compiler messages, the stage that failed."""
