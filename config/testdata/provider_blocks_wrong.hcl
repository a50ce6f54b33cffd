provider "full" {
  auth {
    user     = "much too long a name for a user"
    password = "hunter2"
    listen   = "hunter2"
    pasword  = "hunter2"
  }
  rules {
    ports = ["80"]
    limit {
      rate = 11
      key  = 5
    }
    limits {}
  }
  rules {
    limit {}
    ports {}
  }
  rule {
    ports = [1]
  }
  region {
    a = "hunter2"
  }
  hostname = 7
}

provider "more" {
  plugin = "full"
  auth   = { password = "hunter2" }
  rules {}
  rules {}
  rules {}
  rules {}
}

provider "twice" {
  plugin = "full"
  auth {
    password = "${env("API_KEY")}hunter2"
    user     = "${env("API_KEY")}hunter2"
  }
  auth {}
  labels = {}
  labels {}
}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
