package interpreter

import "testing"

// The server is a program that others write: no line may end ours.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"type":"result","extra":{"a":1},"png":"AA=="}`, `{"type":5}`, `[]`, `null`, "", `{"type":"error"}`} {
		f.Add(seed)
	}
	f.Fuzz(func(_ *testing.T, text string) {
		_, _, _ = parse([]byte(text))
	})
}
