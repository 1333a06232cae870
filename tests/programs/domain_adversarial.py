"""Domain-adversarial training: a reversed gradient whose strength grows, pooling before ReLU."""

import numpy as np
import torch
import torch.nn as nn
from inputs import fill, integers, numbers
from torch.autograd import Function


class ReverseLayerF(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        output = grad_output.neg() * ctx.alpha
        return output, None


class CNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.feature = nn.Sequential()
        self.feature.add_module("f_conv1", nn.Conv2d(1, 4, kernel_size=3))
        self.feature.add_module("f_pool1", nn.MaxPool2d(2))
        self.feature.add_module("f_relu1", nn.ReLU(True))
        self.class_classifier = nn.Sequential()
        self.class_classifier.add_module("c_fc1", nn.Linear(4 * 9, 5))
        self.class_classifier.add_module("c_softmax", nn.LogSoftmax(dim=1))
        self.domain_classifier = nn.Sequential()
        self.domain_classifier.add_module("d_fc1", nn.Linear(4 * 9, 2))
        self.domain_classifier.add_module("d_softmax", nn.LogSoftmax(dim=1))

    def forward(self, input_data, alpha):
        feature = self.feature(input_data)
        feature = feature.view(-1, 4 * 9)
        reverse_feature = ReverseLayerF.apply(feature, alpha)
        return self.class_classifier(feature), self.domain_classifier(reverse_feature)


def build():
    net = fill(CNNModel())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    loss_class, loss_domain = nn.NLLLoss(), nn.NLLLoss()

    def step(source, label, target, alpha):
        net.zero_grad()
        domain_label = torch.zeros(len(label)).long()
        class_output, domain_output = net(input_data=source, alpha=alpha)
        err_s_label = loss_class(class_output, label)
        err_s_domain = loss_domain(domain_output, domain_label)
        domain_label = torch.ones(len(target)).long()
        _, domain_output = net(input_data=target, alpha=alpha)
        err_t_domain = loss_domain(domain_output, domain_label)
        err = err_t_domain + err_s_domain + err_s_label
        err.backward()
        optimizer.step()
        return err_s_label, err_s_domain, err_t_domain

    calls = []
    for i in range(6):
        alpha = 2.0 / (1.0 + np.exp(-10 * i / 6)) - 1
        source, target = (torch.from_numpy(numbers(f"{name}{i}", 5, 1, 8, 8)) for name in "st")
        calls.append((source, torch.from_numpy(integers(f"y{i}", 5, 5)), target, alpha))
    return step, calls, net
