package files

// ReplaceAll is replaceAll for the fuzz test.
var ReplaceAll = replaceAll
