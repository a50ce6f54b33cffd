# The configuration of a broker. This comment belongs to the file.

listen = "127.0.0.1:9385"   # the API

# Where everything runs.
provider "full" {
  # Sizes. Ask Ada before you change them.
  pool_size   =   4        # sandboxes kept ready
  memory_mb   = 512
  api_key     = env("API_KEY")

  labels = {          // aligned by hand
      team  =  "blue"
      "a b" =  "c"
  }
  text = <<EOT
a = "no setting"
}
EOT
}

/* The first of them. */
tenant "acme" {
  token_sha256 = [
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",   # in use
    # soon:
    "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB" # the next one
  ]
}

# Beta is on one line.
tenant "beta" { token_sha256 = ["cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"] }

provider "other" {}

tenant gamma {
	token_sha256 = ["dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd", env("TOKEN"),]
}
