"""What the tests share; the tests themselves are plain modules in the folders below."""
