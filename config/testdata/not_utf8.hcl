listen = "ÿ"
