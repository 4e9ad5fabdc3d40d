"""Records to runs, ranks and compilations: the values that every answer and page is made from."""
