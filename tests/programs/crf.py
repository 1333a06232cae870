"""A BiLSTM with a conditional random field: the forward algorithm in Python loops, Viterbi."""

import torch
import torch.nn as nn
from inputs import fill, integers

START, STOP, TAGS = 3, 4, 5
TRACES = 2  # sentences of two lengths


def log_sum_exp(vec):
    max_score = vec[0, vec.argmax(1)]
    max_score_broadcast = max_score.view(1, -1).expand(1, vec.size()[1])
    return max_score + torch.log(torch.sum(torch.exp(vec - max_score_broadcast)))


class BiLSTMCRF(nn.Module):
    def __init__(self, vocab_size, embedding_dim, hidden_dim):
        super().__init__()
        self.hidden_dim = hidden_dim
        self.word_embeds = nn.Embedding(vocab_size, embedding_dim)
        self.lstm = nn.LSTM(embedding_dim, hidden_dim // 2, num_layers=1, bidirectional=True)
        self.hidden2tag = nn.Linear(hidden_dim, TAGS)
        self.transitions = nn.Parameter(torch.zeros(TAGS, TAGS))

    def forward_alg(self, feats):
        init_alphas = torch.full((1, TAGS), -10000.0)
        init_alphas[0][START] = 0.0
        forward_var = init_alphas
        for feat in feats:
            alphas_t = []
            for next_tag in range(TAGS):
                emit_score = feat[next_tag].view(1, -1).expand(1, TAGS)
                trans_score = self.transitions[next_tag].view(1, -1)
                alphas_t.append(log_sum_exp(forward_var + trans_score + emit_score).view(1))
            forward_var = torch.cat(alphas_t).view(1, -1)
        return log_sum_exp(forward_var + self.transitions[STOP])

    def features(self, sentence):
        hidden = (torch.zeros(2, 1, self.hidden_dim // 2), torch.zeros(2, 1, self.hidden_dim // 2))
        embeds = self.word_embeds(sentence).view(len(sentence), 1, -1)
        lstm_out, _ = self.lstm(embeds, hidden)
        return self.hidden2tag(lstm_out.view(len(sentence), self.hidden_dim))

    def score_sentence(self, feats, tags):
        score = torch.zeros(1)
        tags = torch.cat([torch.tensor([START], dtype=torch.long), tags])
        for i, feat in enumerate(feats):
            score = score + self.transitions[tags[i + 1], tags[i]] + feat[tags[i + 1]]
        return score + self.transitions[STOP, tags[-1]]

    def viterbi(self, feats):
        backpointers = []
        forward_var = torch.full((1, TAGS), -10000.0)
        forward_var[0][START] = 0
        for feat in feats:
            best, pointers = (forward_var + self.transitions).max(1)
            forward_var = (best + feat).view(1, -1)
            backpointers.append(pointers)
        best = (forward_var + self.transitions[STOP]).argmax(1)
        path = [best]
        for pointers in reversed(backpointers):
            best = pointers[best]
            path.append(best)
        return torch.cat(path).flip(0)


def build():
    model = fill(BiLSTMCRF(12, 5, 4))
    with torch.no_grad():
        model.transitions[START, :] = -10000
        model.transitions[:, STOP] = -10000
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, weight_decay=1e-4)

    def step(sentence, targets):
        model.zero_grad()
        feats = model.features(sentence)
        loss = model.forward_alg(feats) - model.score_sentence(feats, targets)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            path = model.viterbi(feats)
        return loss, path

    sentences = [
        (torch.tensor(integers(f"w{n}", 12, n)), torch.tensor(integers(f"t{n}", 3, n)))
        for n in (5, 4)
    ]
    return step, sentences * 3, model
