# The files of one directory, a file by its name, and this file, which the
# pattern for its own directory would match too.
include = ["included/right/*.hcl", "included/limits.hcl", "ok_includ?.hcl"]

providers {
  active   = "full"
  fallback = ["other", "third"]
}
