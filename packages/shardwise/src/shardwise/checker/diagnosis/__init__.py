"""How a refusal becomes a finding: the words, the facts with numbers, repairs that were tried."""
