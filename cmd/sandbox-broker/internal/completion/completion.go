package completion

import (
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Candidate is a word that may come next.
type Candidate struct {
	Word string
	// Help says what it is, in a line; it may be empty.
	Help string
}

// Options are what Next asks for what the command line does not say.
type Options struct {
	// Names are the names of a kind, as a tag says, that may stand for the word. The flags
	// are those that stand on the line so far and have a value.
	Names func(kind, word string, flags map[string]string) []string
}

// Next says what may come for the last of the words, behind those before it. The name of the
// program is not among them. Files says that the shell shall offer files.
func Next(model *kong.Application, words []string, o Options) (candidates []Candidate, files bool) {
	if len(words) == 0 {
		words = []string{""}
	}
	l := &line{node: model.Node, flags: map[string]string{}}
	for _, word := range words[:len(words)-1] {
		l.take(word)
	}
	return l.offer(words[len(words)-1], o)
}

// line is the part of a command line that was read so far.
type line struct {
	node       *kong.Node
	pending    *kong.Flag // waits for its value
	positional int        // arguments of the node
	dashes     bool       // no more flags
	flags      map[string]string
}

// take reads one word.
func (l *line) take(word string) {
	switch {
	case l.pending != nil:
		l.flags[l.pending.Name] = word
		l.pending = nil
	case l.dashes:
		l.positional++
	case word == "--":
		l.dashes = true
	case strings.HasPrefix(word, "--"):
		name, value, has := strings.Cut(word[2:], "=")
		flag := l.flag(name)
		switch {
		case flag == nil:
		case has:
			l.flags[flag.Name] = value
		case !flag.IsBool():
			l.pending = flag
		}
	case strings.HasPrefix(word, "-") && word != "-":
		l.takeShort(word[1:])
	default:
		l.takeArgument(word)
	}
}

// takeShort reads flags of one letter: of several, the first that wants a value has the rest
// for it.
func (l *line) takeShort(letters string) {
	for i, letter := range letters {
		flag := l.short(letter)
		if flag == nil {
			return
		}
		if flag.IsBool() {
			continue
		}
		if rest := letters[i+len(string(letter)):]; rest != "" {
			l.flags[flag.Name] = rest
		} else {
			l.pending = flag
		}
		return
	}
}

func (l *line) takeArgument(word string) {
	if l.positional == 0 {
		for _, child := range l.children() {
			if child.Name == word || slices.Contains(child.Aliases, word) {
				l.node = child
				return
			}
		}
	}
	if p := l.argument(); p != nil && p.Passthrough {
		l.dashes = true // all that follows is somebody else's
	}
	l.positional++
}

// children are the commands below.
func (l *line) children() []*kong.Node {
	var commands []*kong.Node
	for _, child := range l.node.Children {
		if child.Type == kong.CommandNode && !child.Hidden {
			commands = append(commands, child)
		}
	}
	return commands
}

// argument is the one that comes next, the last one again if it may be repeated.
func (l *line) argument() *kong.Positional {
	all := l.node.Positional
	if len(all) == 0 && l.node.DefaultCmd != nil {
		all = l.node.DefaultCmd.Positional
	}
	if len(all) == 0 {
		return nil
	}
	if l.positional < len(all) {
		return all[l.positional]
	}
	if last := all[len(all)-1]; last.Target.Kind() == reflect.Slice {
		return last
	}
	return nil
}

func (l *line) allFlags() []*kong.Flag {
	var all []*kong.Flag
	nodes := []*kong.Node{l.node}
	if l.node.DefaultCmd != nil {
		nodes = append(nodes, l.node.DefaultCmd)
	}
	for _, node := range nodes {
		for _, group := range node.AllFlags(true) {
			for _, flag := range group {
				if !flag.Hidden && !slices.Contains(all, flag) {
					all = append(all, flag)
				}
			}
		}
	}
	return all
}

func (l *line) flag(name string) *kong.Flag {
	for _, flag := range l.allFlags() {
		if flag.Name == name || slices.Contains(flag.Aliases, name) {
			return flag
		}
	}
	return nil
}

func (l *line) short(letter rune) *kong.Flag {
	for _, flag := range l.allFlags() {
		if flag.Short == letter {
			return flag
		}
	}
	return nil
}

// offer says what may come for a word that is not complete.
func (l *line) offer(word string, o Options) ([]Candidate, bool) {
	switch {
	case l.pending != nil:
		return l.values(l.pending.Value, word, "", o)
	case !l.dashes && strings.HasPrefix(word, "--") && strings.Contains(word, "="):
		name, value, _ := strings.Cut(word[2:], "=")
		if flag := l.flag(name); flag != nil {
			return l.values(flag.Value, value, "--"+name+"=", o)
		}
		return nil, false
	case !l.dashes && strings.HasPrefix(word, "-"):
		return l.offerFlags(word), false
	}
	var found []Candidate
	if l.positional == 0 {
		for _, child := range l.children() {
			if strings.HasPrefix(child.Name, word) {
				found = append(found, Candidate{child.Name, child.Help})
			}
		}
	}
	p := l.argument()
	if p == nil {
		return found, false
	}
	values, files := l.values(p, word, "", o)
	return append(found, values...), files
}

func (l *line) offerFlags(word string) []Candidate {
	var found []Candidate
	for _, flag := range l.allFlags() {
		if name := "--" + flag.Name; strings.HasPrefix(name, word) {
			found = append(found, Candidate{name, flag.Help})
		}
	}
	slices.SortFunc(found, func(a, b Candidate) int { return strings.Compare(a.Word, b.Word) })
	return found
}

// values are those that a flag or an argument may have, each behind a prefix.
func (l *line) values(of *kong.Value, word, prefix string, o Options) (found []Candidate, files bool) {
	kind := of.Tag.Get("complete")
	var words []string
	switch {
	case of.Enum != "":
		words = of.EnumSlice()
	case kind == "" && strings.Contains(of.Tag.PlaceHolder, "FILE"), kind == "files":
		return nil, true
	case kind != "" && kind != "none" && o.Names != nil:
		words = o.Names(kind, word, l.flags)
		files = kind == "places" && !strings.Contains(word, ":")
	}
	for _, w := range words {
		if strings.HasPrefix(w, word) {
			found = append(found, Candidate{Word: prefix + w})
		}
	}
	return found, files
}
