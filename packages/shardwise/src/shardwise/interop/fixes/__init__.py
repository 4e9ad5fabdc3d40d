"""Edits that mend what a finding is about, one module for each family of findings; whoever reports asks for them.

Nothing here is sure of the numbers: ``check --fix`` makes what two commands prove, and offers the rest as a choice.
"""
