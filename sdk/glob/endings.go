package glob

import (
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxEndings is how many endings are told of.
const maxEndings = 32

// Endings returns texts one of which each path that matches ends with, so that others need
// not be looked at. There are none where nothing is known of the end.
func (g *Glob) Endings() []string {
	if g == nil {
		return nil
	}
	re, err := syntax.Parse(g.re.String(), syntax.Perl)
	if err != nil {
		return nil
	}
	found, _ := endings(re)
	if slices.Contains(found, "") {
		return nil
	}
	return found
}

// unknown is the ending of what may end in any way.
var unknown = []string{""}

// endings are those of what an expression matches. They are all that it matches if whole is
// set. U+FFFD is none: it also stands for a byte that is no UTF-8.
func endings(re *syntax.Regexp) (found []string, whole bool) {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpBeginText, syntax.OpEndText:
		return unknown, true
	case syntax.OpLiteral:
		if text := string(re.Rune); !strings.ContainsRune(text, utf8.RuneError) {
			return []string{text}, true
		}
	case syntax.OpCharClass:
		for i := 0; i+1 < len(re.Rune); i += 2 {
			for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
				if found = append(found, string(r)); len(found) > maxEndings || r == utf8.RuneError {
					return unknown, false
				}
			}
		}
		return found, true
	case syntax.OpCapture:
		return endings(re.Sub[0])
	case syntax.OpQuest:
		if found, whole = endings(re.Sub[0]); whole && len(found) < maxEndings {
			return append(slices.Clone(found), ""), true
		}
	case syntax.OpAlternate:
		whole = true
		for _, sub := range re.Sub {
			more, all := endings(sub)
			found, whole = append(found, more...), whole && all
		}
		if len(found) <= maxEndings {
			return found, whole
		}
	case syntax.OpConcat:
		return endingsOf(re.Sub)
	}
	return unknown, false
}

// endingsOf are those of expressions that follow one another.
func endingsOf(subs []*syntax.Regexp) (found []string, whole bool) {
	found = unknown
	for _, sub := range slices.Backward(subs) {
		before, whole := endings(sub)
		if len(before)*len(found) > maxEndings {
			return found, false
		}
		var longer []string
		for _, first := range before {
			for _, rest := range found {
				longer = append(longer, first+rest)
			}
		}
		if found = longer; !whole {
			return found, false
		}
	}
	return found, true
}
