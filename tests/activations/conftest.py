"""Small models whose layers are easy to catch by hand."""

import pytest

torch = pytest.importorskip("torch")


class Pictures(torch.nn.Module):
    """A convolution, an activation that works in place, and a head behind dropout."""

    def __init__(self):
        super().__init__()
        conv = torch.nn.Conv2d(3, 4, 3)
        self.encoder = torch.nn.Sequential(conv, torch.nn.ReLU(inplace=True), torch.nn.Flatten())
        self.head = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(4 * 36, 5))

    def forward(self, x):
        return self.head(self.encoder(x))


class Words(torch.nn.Module):
    """An embedding and a layer over it, which gives a tuple as attention layers do."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(128, 6)
        self.recur = torch.nn.GRU(6, 7, batch_first=True)
        self.unused = torch.nn.Linear(2, 2)

    def forward(self, tokens, attention_mask=None):
        return self.recur(self.embed(tokens))[0]


@pytest.fixture
def pictures():
    torch.manual_seed(0)
    return Pictures()


@pytest.fixture
def words():
    torch.manual_seed(0)
    return Words()


@pytest.fixture
def tokenize():
    """Characters as tokens, padded on the right."""

    def tokenize(texts):
        length = max(map(len, texts))
        tokens = torch.tensor([[ord(c) for c in text.ljust(length, "\0")] for text in texts])
        return {"tokens": tokens, "attention_mask": (tokens > 0).long()}

    return tokenize
