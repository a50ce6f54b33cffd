package sdk

import (
	"fmt"
	"regexp/syntax"
)

// maxPatternSize bounds what a pattern compiles to, in instructions. Ten bytes of
// repetition around a thousand letters are a million of them: half a second and
// 200 MB, for each field.
const maxPatternSize = 5000

// checkPattern says what is wrong with a pattern, before it is compiled. RE2 matches in
// time that grows with the text alone, so the size is all that has to be bounded.
func checkPattern(pattern string) error {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return fmt.Errorf("pattern does not compile: %w", err)
	}
	if patternSize(tree) > maxPatternSize {
		return fmt.Errorf("pattern is too large once its repetitions are written out; at most %d characters and classes are allowed", maxPatternSize)
	}
	return nil
}

// patternSize is about the number of instructions, or more than maxPatternSize.
func patternSize(tree *syntax.Regexp) int {
	size := 1
	if tree.Op == syntax.OpLiteral {
		size = len(tree.Rune)
	}
	for _, sub := range tree.Sub {
		if size += patternSize(sub); size > maxPatternSize {
			return size
		}
	}
	if tree.Op == syntax.OpRepeat {
		size *= max(tree.Min, tree.Max, 1)
	}
	return size
}
