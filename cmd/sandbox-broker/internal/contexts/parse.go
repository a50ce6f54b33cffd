package contexts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// largestFile bounds the file, in bytes.
const largestFile = 1 << 20

// parse reads a file and checks all that is in it.
func parse(r io.Reader) (File, error) {
	text, err := io.ReadAll(io.LimitReader(r, largestFile+1))
	if err != nil {
		return File{}, err
	}
	if len(text) > largestFile {
		return File{}, errors.New("it is larger than a megabyte")
	}
	var file File
	if err := json.Unmarshal(text, &file); err != nil {
		// The text of the error may quote what stands there, a token for example.
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return File{}, fmt.Errorf("it is no JSON, at byte %d", syntax.Offset)
		}
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return File{}, fmt.Errorf("%s is of the wrong type, at byte %d", kind.Field, kind.Offset)
		}
		return File{}, errors.New("it is no JSON")
	}
	if file.Contexts == nil {
		file.Contexts = map[string]Context{}
	}
	for name, c := range file.Contexts {
		if err := check(name, c); err != nil {
			return File{}, err
		}
	}
	if file.Current != "" {
		if _, err := file.Get(file.Current); err != nil {
			return File{}, fmt.Errorf("current: %w", err)
		}
	}
	return file, nil
}
