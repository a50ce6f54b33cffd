package localfiles

// ChunkBytes is chunkBytes for a test.
const ChunkBytes = chunkBytes

// ReplaceAll is replaceAll for the fuzz test.
var ReplaceAll = replaceAll

// Place says where a path leads, for the fuzz test.
func Place(roots []string, path string) (root, name string, err error) {
	return New(Options{Places: roots}).split("", "path", path)
}
