include = [
  "included/none.hcl",
  "nowhere/*.hcl",
  "included/*/a.hcl",
  "included/right",
  "included/right/*",
  "included/[.hcl",
  "included/odd/directory.hcl",
  "",
  "included/odd/*.hcl",
]
