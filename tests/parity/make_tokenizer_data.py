#!/usr/bin/env python3
"""Writes tests/parity/data/tokenizer: small tokenizers of the kinds that model families use, trained with Hugging
Face's `tokenizers`, and that library's results for a few thousand strings in many scripts. Run it with an
interpreter that has `tokenizers`; the result depends on its version, which is written into the files."""
import json
import pathlib
import random

import tokenizers
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

OUT = pathlib.Path(__file__).resolve().parent / "data" / "tokenizer"
GPT4_STYLE = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
              r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN_STYLE = GPT4_STYLE.replace(r"\p{N}{1,3}", r"\p{N}")

SENTENCES = """The harbour opens at six; don't be late, we'll wait for 15 minutes (at most).
It's 3.14159, isn't it? I'VE SAID "yes" -- twice... and they're gone!
def encode(self, text: str) -> list[int]:\\n    return [ord(c) for c in text]  # naïve
{"name": "Zoë", "tags": ["a", "b\\n"], "ok": true, "n": -1.5e+10}
Größe, Straße, Äpfel und Übermut: der Fluß fließt über die Wehre.
L'été dernier, où étiez-vous ? Ça m'est égal, cœur à cœur.
El niño comió piñones mañana por la mañana. ¿Qué? ¡Olé!
Zażółć gęślą jaźń, pchnąć w tę łódź jeża lub ośm skrzyń fig.
Příliš žluťoučký kůň úpěl ďábelské ódy.
Στη ζωή κάποιος πρέπει να είναι απλός: ΟΔΥΣΣΕΥΣ, Ὀδυσσεύς.
Съешь же ещё этих мягких французских булок, да выпей чаю.
Ղեկավար, բարև ձեզ։ ქართული ენა უძველესია.
שלום עולם, מה שלומך היום? זה טקסט עם נִקּוּד.
مرحبا بالعالم، كيف حالك اليوم؟ السَّلامُ عَلَيْكُم
یہ اردو کا ایک جملہ ہے۔ فارسی شکر است.
नमस्ते दुनिया, आप कैसे हैं? क्षत्रिय ज्ञान।
বাংলা ভাষা সুন্দর। தமிழ் மொழி இனிமையானது. తెలుగు భాష
ภาษาไทยไม่มีช่องว่างระหว่างคำ ១២៣ ខ្មែរ မြန်မာဘာသာ
日本語の文章です。カタカナと漢字、ﾊﾝｶｸもあります。
中文没有空格，但是有标点符号！繁體字也可以。
한국어 문장입니다. 한글은 자모로 이루어져 있다: 한글
Монгол хэл ᠮᠣᠩᠭᠣᠯ\u180eᠬᠡᠯᠡ ᐃᓄᒃᑎᑐᑦ ᎣᏏᏲ
😀 👩‍👩‍👧‍👦 🇩🇪 ✨ ☕️ 1️⃣ 🤷🏽‍♀️ ½ ² Ⅷ ① ﬁ Å Ω ℵ
tabs\tand\u00a0no-break\u2009thin\u3000wide\u200bzero\u0085nel\u2028line\r\\nwindows\\n\\n\\nthree   spaces   
a\u0301e\u0308o\u0323\u0302 A\u030a \u1e9b\u0323 \u212b \ufb01 \u1100\u1161\u11a8 \u0958
\x00\x01\x1b[31m \x7f \ufeffbom \ufffd \U0001f9ff \U00020000 \U0010fffd
ＦＵＬＬｗｉｄｔｈ １２３ ｶﾞ ㍿ ㌔ ﷺ ĳ ǆ ſ K
SELECT * FROM t WHERE x>=10 AND y!='it''s'; -- 100% done_now
https://example.org/a/b?c=d&e=%20f#g user@example.com C:\\dir\\file.txt
1,234,567.89 0x1F 12345678901234567890 ٣٤٥ ३४५ 一二三"""
SENTENCES = [line.replace("\\n", "\n") for line in SENTENCES.split("\n")]


def cases():
    source = random.Random(7)
    characters = sorted({c for sentence in SENTENCES for c in sentence})
    blocks = [(0x20, 0x7e), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x52f), (0x5d0, 0x6ff), (0x900, 0xdff), (0xe00, 0xeff),
              (0x1100, 0x11ff), (0x1e00, 0x1fff), (0x2000, 0x206f), (0x2100, 0x24ff), (0x3040, 0x30ff), (0x4e00, 0x4eff),
              (0xac00, 0xac7f), (0xff00, 0xffef), (0x1f300, 0x1f64f)]
    out = ["", " ", "  ", "\n", " \n ", "a", " a", "a ", "  a  b  "] + SENTENCES
    specials = ["<|end|>", "<|im_start|>", "<s>", "</s>", "<tool>", "[MASK]", "word", "<unk>", "<|end|"]
    for _ in range(150):
        a, b = source.choice(SENTENCES), source.choice(SENTENCES)
        out.append(a[source.randrange(len(a)):][:25] + source.choice(["", " ", "  ", "\n", "\t "]) + b[:source.randrange(1, 25)])
    for _ in range(150):
        out.append("".join(source.choice(characters) for _ in range(source.randrange(1, 20))))
    for _ in range(150):
        low, high = source.choice(blocks)
        out.append("".join(chr(source.randint(low, high)) for _ in range(source.randrange(1, 12))))
    for _ in range(120):
        parts = [source.choice([source.choice(specials), source.choice(SENTENCES)[:8], " ", "\n", "x"])
                 for _ in range(source.randrange(1, 7))]
        out.append("".join(parts))
    return sorted(set(out), key=out.index)


def train(tokenizer, alphabet, specials):
    trainer = trainers.BpeTrainer(vocab_size=900, show_progress=False, initial_alphabet=alphabet,
                                  special_tokens=specials, limit_alphabet=1000)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


def gpt2():
    out = Tokenizer(models.BPE())
    out.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    out.decoder = decoders.ByteLevel()
    out.post_processor = processors.ByteLevel(trim_offsets=False)
    return train(out, pre_tokenizers.ByteLevel.alphabet(), ["<|end|>"])


def split_style(pattern, normalizer, ignore_merges):
    out = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        out.normalizer = normalizer
    out.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated", False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    out.decoder = decoders.ByteLevel()
    return out


def llama3():
    out = train(split_style(GPT4_STYLE, None, True), pre_tokenizers.ByteLevel.alphabet(), ["<|begin|>", "<|end|>"])
    out.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", out.token_to_id("<|begin|>"))])])
    return out


def qwen2():
    out = train(split_style(QWEN_STYLE, normalizers.NFC(), False), pre_tokenizers.ByteLevel.alphabet(),
                ["<|end|>", "<|im_start|>"])
    out.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    return out


def sentencepiece_style():
    out = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    out.normalizer = normalizers.Replace(" ", "▁")
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    return train(out, [], ["<unk>", "<s>", "</s>"] + bytes_)


def llama2_legacy():
    out = sentencepiece_style()
    out.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    out.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                     decoders.Strip(" ", 1, 0)])
    out.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return out


def llama2():
    out = sentencepiece_style()
    # The form that converters write since Transformers 4.38: no normalizer.
    text = json.loads(out.to_str())
    text["normalizer"] = None
    text["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    text["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    return Tokenizer.from_str(json.dumps(text))


def odd():
    """A tokenizer with every option that no family above uses."""
    out = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=False))
    out.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    out.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Split(" ", "merged_with_previous", False),
        pre_tokenizers.Split(Regex(r"\p{P}"), "merged_with_next", False),
        pre_tokenizers.Split(Regex(r"\s+"), "contiguous", False)])
    out.decoder = decoders.ByteLevel()
    out = train(out, [], ["<unk>"])
    out.add_tokens([AddedToken("[MASK]", lstrip=True, rstrip=True, special=True, normalized=False),
                    AddedToken("word", single_word=True, normalized=False), AddedToken("<TOOL>", normalized=True)])
    return out


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    texts = cases()
    kinds = {"gpt2": gpt2, "llama3": llama3, "qwen2": qwen2, "llama2": llama2, "llama2_legacy": llama2_legacy, "odd": odd}
    for name, make in kinds.items():
        tokenizer = make()
        (OUT / f"{name}.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=True,
                                                     separators=(",", ":")) + "\n")
        lines = []
        for text in texts:
            ids = tokenizer.encode(text).ids
            case = [text, ids]
            if name != "odd":  # it has no decoder
                case.append(tokenizer.decode(ids, skip_special_tokens=True))
            lines.append(json.dumps(case, ensure_ascii=True, separators=(",", ":")))
        header = json.dumps({"made_with": f"tokenizers {tokenizers.__version__}", "cases": len(texts)})
        (OUT / f"{name}.cases.jsonl").write_text("\n".join([header] + lines) + "\n")
        print(name, tokenizer.get_vocab_size(), len(texts))


if __name__ == "__main__":
    main()
