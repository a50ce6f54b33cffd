package completion

import (
	"embed"
	"fmt"
	"io"
	"strings"
	"unicode"
)

//go:embed scripts
var scripts embed.FS

// Script is what a shell reads to complete command lines: bash, zsh or fish.
func Script(shell string) ([]byte, error) {
	text, err := scripts.ReadFile("scripts/" + shell)
	if err != nil {
		return nil, fmt.Errorf("there is no completion for %q", shell)
	}
	return text, nil
}

// Write writes what may come next as the scripts read it: a line that says whether the shell
// shall offer files, and then each word, with its help behind a tab.
func Write(w io.Writer, candidates []Candidate, files bool) error {
	var b strings.Builder
	b.WriteString("words\n")
	if files {
		b.Reset()
		b.WriteString("files\n")
	}
	for _, c := range candidates {
		if strings.ContainsFunc(c.Word, special) {
			continue // it may be a file's name that somebody's code has chosen, for a shell to run
		}
		b.WriteString(c.Word)
		if c.Help != "" {
			b.WriteString("\t" + strings.ReplaceAll(c.Help, "\n", " "))
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// special reports whether a character may mean something to a shell, or ends a word.
func special(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_./:@%+,=-", r)
}
