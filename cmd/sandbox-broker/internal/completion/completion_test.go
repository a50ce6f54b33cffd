package completion_test

import (
	"io"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/completion"
)

// commands is a command line with all that completion knows.
type commands struct {
	Go struct {
		Where []string `arg:"" complete:"places"`
		Speed string   `short:"s" enum:"slow,fast" default:"slow"`
		Quiet bool     `short:"q"`
		Log   string   `placeholder:"FILE"`
		Old   string   `hidden:""`
	} `cmd:"" help:"Go there."`
	With struct {
		Whom string   `arg:"" complete:"names"`
		Args []string `arg:"" optional:"" passthrough:"partial" complete:"none"`
	} `cmd:"" aliases:"beside"`
	Group struct {
		List struct {
			Names []string `arg:"" optional:"" complete:"names"`
		} `cmd:"" default:"withargs"`
		Secret struct{} `cmd:"" hidden:""`
	} `cmd:""`
}

func model(t testing.TB) *kong.Application {
	t.Helper()
	parser, err := kong.New(&commands{})
	assert.NilError(t, err)
	return parser.Model
}

func TestWhatComesNext(t *testing.T) {
	options := completion.Options{Names: func(kind, _ string, flags map[string]string) []string {
		return []string{kind + "-a", kind + "-b", "flags:" + flags["speed"]}
	}}
	for line, want := range map[string]string{
		"":                  "go with group",
		"g":                 "go group",
		"go -":              "--help --log --quiet --speed",
		"go --sp":           "--speed",
		"go --speed ":       "slow fast",
		"go --speed=f":      "--speed=fast",
		"go -qs f":          "fast",
		"go -sfast flags":   "FILES flags:fast",
		"go --log ":         "FILES",
		"go --nothing p":    "FILES places-a places-b",
		"go places-a p":     "FILES places-a places-b",
		"beside names-":     "names-a names-b",
		"with names-a ":     "",
		"with names-a ls -": "",
		"group ":            "list names-a names-b flags:",
		"group x n":         "names-a names-b",
		"group list x n":    "names-a names-b",
		"nothing ":          "",
		"go -- -":           "FILES",
	} {
		t.Run(line, func(t *testing.T) {
			candidates, files := completion.Next(model(t), strings.Split(line, " "), options)
			var got []string
			if files {
				got = append(got, "FILES")
			}
			for _, c := range candidates {
				got = append(got, c.Word)
			}
			assert.Equal(t, strings.Join(got, " "), want)
		})
	}
	candidates, _ := completion.Next(model(t), nil, completion.Options{})
	assert.DeepEqual(t, candidates[0], completion.Candidate{Word: "go", Help: "Go there."})
}

// Names of files are chosen by code in a sandbox.
func TestWhatAShellWouldNotTakeAsAWordIsNotOffered(t *testing.T) {
	var b strings.Builder
	assert.NilError(t, completion.Write(&b, []completion.Candidate{{Word: "a\nb"}, {Word: "c\td"}, {Word: "x:$(touch y)"}, {Word: "x;y"}, {Word: "e", Help: "two\nlines"}}, true))
	assert.Equal(t, b.String(), "files\ne\ttwo lines\n")
	_, err := completion.Script("tcsh")
	assert.ErrorContains(t, err, "no completion")
}

// Whatever stands on a command line, the answer to the key is no panic and no error.
func FuzzNext(f *testing.F) {
	program := model(f)
	f.Add("with -it one -- ls -")
	f.Add("group list --=x -\xff -- --speed=")
	f.Fuzz(func(t *testing.T, line string) {
		words := strings.Split(line, " ")
		word := words[len(words)-1]
		candidates, files := completion.Next(program, words, completion.Options{Names: func(_, word string, _ map[string]string) []string { return []string{word} }})
		assert.NilError(t, completion.Write(io.Discard, candidates, files))
		for _, c := range candidates {
			assert.Check(t, strings.HasPrefix(c.Word, word), "%q", c.Word)
		}
	})
}
