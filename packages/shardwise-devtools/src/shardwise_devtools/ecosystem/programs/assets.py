"""Writes what torchtitan reads: a tokenizer of bytes and a small text, into ``assets`` in this folder."""

import json
import pathlib

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

FIRST, LAST = "<|begin_of_text|>", "<|end_of_text|>"

vocabulary = {letter: at for at, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
vocabulary |= {FIRST: len(vocabulary), LAST: len(vocabulary) + 1}
tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens([FIRST, LAST])
folder = pathlib.Path("assets/tokenizer")
folder.mkdir(parents=True)
tokenizer.save(str(folder / "tokenizer.json"))
(folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": FIRST, "eos_token": LAST}))
text = pathlib.Path("assets/c4_test")
text.mkdir()
lines = (f"Line {line}: " + " ".join(str(line * at * 7919 % 1000) for at in range(60)) for line in range(400))
(text / "data.json").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
