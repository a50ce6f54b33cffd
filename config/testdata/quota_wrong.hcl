provider "full" {
  cost_per_second = -1
}

quota {
  max_instance   = 1
  max_concurrent = 0
}

quota {}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]

  quota {
    max_concurent             = 5
    requests_per_second       = 0
    execution_seconds_per_day = "long"
    money_per_day             = "5"
  }

  quota {}

  quotas {}

  providers {}
}

tenant "other" {
  token_sha256 = ["bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"]
  quota        = { max_instances = 5 }
}

tenant "third" {
  token_sha256 = ["cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"]

  quota "x" {
    max_cpus = 1
  }
}
