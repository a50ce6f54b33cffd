package files

// ReplaceAll is replaceAll for the fuzz test.
var ReplaceAll = replaceAll

// Place says where a path leads, for the fuzz test.
func Place(roots []string, path string) (root, name string, err error) {
	p, err := (&service{options: Options{Roots: roots}}).place("path", path)
	return p.root, p.name, err
}
