# A tenant's webhooks with every mistake that there may be.
provider "self_managed" {}

tenant "no-hosts" {
  token_sha256 = ["46b42b4229cd7a3911a7d8fdbeb9e9dd8a7d1d8eb1f4a3e5cc2e0f9bbd5a0401"]
  webhooks {
    secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
  }
}

tenant "no-secret" {
  token_sha256 = ["46b42b4229cd7a3911a7d8fdbeb9e9dd8a7d1d8eb1f4a3e5cc2e0f9bbd5a0402"]
  webhooks {
    allow = ["agent.example.com"]
  }
}

tenant "wrong" {
  token_sha256 = ["46b42b4229cd7a3911a7d8fdbeb9e9dd8a7d1d8eb1f4a3e5cc2e0f9bbd5a0403"]
  webhooks {
    allow         = ["https://agent.example.com", "*", "a.example:0", "a.example/x", "10.0.0.1:99999", "A.example", "*.b.example:8443"]
    allow_private = ["[::1]:80", "10.0.0.1"]
    secret        = "too short"
    alow          = []
  }
}

tenant "attribute" {
  token_sha256 = ["46b42b4229cd7a3911a7d8fdbeb9e9dd8a7d1d8eb1f4a3e5cc2e0f9bbd5a0404"]
  webhooks     = {}
}
