"""Which wrong programs have a fix after which the types are clean and the numbers right?"""
