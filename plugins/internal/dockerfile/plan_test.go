package dockerfile_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/dockerfile"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// options know the images base and, which none may build upon, triggers.
func options(args map[string]string) dockerfile.Options {
	return dockerfile.Options{
		Args: args, Architecture: "amd64", Hidden: []string{"workspace", "home/user"},
		Resolve: func(_ context.Context, image string) (dockerfile.Base, error) {
			switch image {
			case "base":
				return dockerfile.Base{Env: map[string]string{"PATH": "/bin", "OF": "base"}, Dir: "/srv"}, nil
			case "triggers":
				return dockerfile.Base{Triggers: true}, nil
			default:
				return dockerfile.Base{}, sdk.Errorf(sdk.CodeConnectionFailed, "no image %s", image)
			}
		},
	}
}

// shown is a plan as text.
func shown(p *dockerfile.Plan) string {
	var b strings.Builder
	for n, s := range p.Stages {
		from := -1
		for k, other := range p.Stages {
			if other == s.From {
				from = k
			}
		}
		fmt.Fprintf(&b, "%d of %q %d\n", n, s.Image, from)
		for _, step := range s.Steps {
			switch {
			case step.Run != nil:
				fmt.Fprintf(&b, "%d run %q in %s with %v\n", step.Line, step.Run.Argv, step.Run.Dir, step.Run.Env)
			case step.Copy != nil:
				of := -1
				for k, other := range p.Stages {
					if other == step.Copy.From {
						of = k
					}
				}
				fmt.Fprintf(&b, "%d copy %q of %d to %s %t\n", step.Line, step.Copy.Sources, of, step.Copy.To, step.Copy.Into)
			default:
				fmt.Fprintf(&b, "%d directory %s\n", step.Line, step.Directory)
			}
		}
	}
	return b.String()
}

func TestADockerfileIsRead(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"the least":                   {"FROM base", "0 of \"base\" -1\n"},
		"from nothing":                {"FROM scratch\nCOPY a /", "0 of \"\" -1\n2 copy [\"a\"] of -1 to / true\n"},
		"small letters":               {"from base\nrun x", "0 of \"base\" -1\n2 run [\"/bin/sh\" \"-c\" \"x\"] in /srv with map[OF:base PATH:/bin]\n"},
		"a list":                      {"FROM base\nRUN [\"a\", \"b c\"]", "0 of \"base\" -1\n2 run [\"a\" \"b c\"] in /srv with map[OF:base PATH:/bin]\n"},
		"lines that go on":            {"FROM base\n# a comment\nRUN a \\\n  # another\n  && b", "0 of \"base\" -1\n3 run [\"/bin/sh\" \"-c\" \"a   && b\"] in /srv with map[OF:base PATH:/bin]\n"},
		"another escape":              {"# escape=`\nFROM base\nRUN a `\n  b", "0 of \"base\" -1\n3 run [\"/bin/sh\" \"-c\" \"a   b\"] in /srv with map[OF:base PATH:/bin]\n"},
		"a shell":                     {"FROM base\nSHELL [\"/bin/bash\", \"-ec\"]\nRUN x", "0 of \"base\" -1\n3 run [\"/bin/bash\" \"-ec\" \"x\"] in /srv with map[OF:base PATH:/bin]\n"},
		"directories":                 {"FROM base\nWORKDIR a\nWORKDIR /b/../c\nWORKDIR /workspace/x\nCOPY d /e", "0 of \"base\" -1\n2 directory /srv/a\n3 directory /c\n5 copy [\"d\"] of -1 to /e false\n"},
		"variables":                   {"FROM base\nARG A=1\nENV B=$A C=\"x ${B:-none}\" D='$A'\nENV E ${A}2 3\nRUN x", "0 of \"base\" -1\n5 run [\"/bin/sh\" \"-c\" \"x\"] in /srv with map[A:1 B:1 C:x none D:$A E:12 3 OF:base PATH:/bin]\n"},
		"arguments":                   {"ARG I=none\nARG G=global\nFROM $I\nARG G\nARG L=local\nARG N\nENV G2=$G L2=$L N2=$N", "0 of \"base\" -1\n"},
		"a variable stands above ARG": {"FROM base\nENV A=env\nARG A=arg\nRUN x", "0 of \"base\" -1\n4 run [\"/bin/sh\" \"-c\" \"x\"] in /srv with map[A:env OF:base PATH:/bin]\n"},
		"stages":                      {"FROM base AS one\nRUN x\nFROM base AS unused\nRUN y\nFROM One\nCOPY --from=one a b/\nCOPY --from=0 c /d", "0 of \"base\" -1\n2 run [\"/bin/sh\" \"-c\" \"x\"] in /srv with map[OF:base PATH:/bin]\n1 of \"\" 0\n6 copy [\"a\"] of 0 to /srv/b true\n7 copy [\"c\"] of 0 to /d false\n"},
		"an image to copy from":       {"FROM scratch\nCOPY --from=base a b", "0 of \"base\" -1\n1 of \"\" -1\n2 copy [\"a\"] of 0 to /b false\n"},
		"a platform":                  {"FROM --platform=$TARGETPLATFORM base", "0 of \"base\" -1\n"},
		"a text":                      {"FROM base\nRUN <<EOF\na\nb\nEOF\nRUN cat <<-E >x\n\ty\n\tE", "0 of \"base\" -1\n2 run [\"/bin/sh\" \"-c\" \"a\\nb\\n\"] in /srv with map[OF:base PATH:/bin]\n6 run [\"/bin/sh\" \"-c\" \"cat <<-E >x\\n\\ty\\nE\"] in /srv with map[OF:base PATH:/bin]\n"},
		"absolute sources":            {"FROM scratch\nCOPY /a ./b/../c d/", "0 of \"\" -1\n2 copy [\"a\" \"c\"] of -1 to /d true\n"},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := dockerfile.Read(t.Context(), []byte(test.text), options(map[string]string{"I": "base"}))
			assert.NilError(t, err)
			assert.Equal(t, shown(plan), test.want)
		})
	}
	plan, err := dockerfile.Read(t.Context(), []byte("FROM base\nARG A=default\nARG B\nENV X=$A$B\nCMD x\nEXPOSE 80\nUSER a"), options(map[string]string{"A": "given"}))
	assert.NilError(t, err)
	assert.Equal(t, plan.Stages[0].Env["X"], "given")
	assert.Check(t, is.Len(plan.Notes, 3))
	assert.Check(t, is.Contains(plan.Notes[0], "line 5: CMD is not run"))
}

func TestWhatCannotBeBuiltIsRefusedWithItsLine(t *testing.T) {
	for name, test := range map[string]struct {
		text, says string
		line       int
	}{
		"nothing":                    {"", "no instructions", 0},
		"no FROM":                    {"ARG A", "no FROM", 0},
		"no text":                    {"FROM base\n\x00", "no text", 0},
		"an unknown instruction":     {"FROM base\nMAKE x", `"MAKE" is no instruction`, 2},
		"a trigger":                  {"FROM base\nONBUILD RUN x", "ONBUILD is not supported", 2},
		"triggers of an image":       {"FROM triggers", "ONBUILD", 1},
		"RUN before FROM":            {"RUN x\nFROM base", "before the first FROM", 1},
		"a mount":                    {"FROM base\nRUN --mount=type=bind,source=/,target=/host cat /host/etc/shadow", `RUN "--mount=`, 2},
		"more rights":                {"FROM base\nRUN --security=insecure x", `RUN "--security=insecure" is not supported`, 2},
		"the network of the machine": {"FROM base\nRUN --network=host x", `RUN "--network=host" is not supported`, 2},
		"an address":                 {"FROM base\nADD https://example.com/x /", "not a file of the context", 2},
		"a repository":               {"FROM base\nADD git@example.com:x.git /", "not a file of the context", 2},
		"an address in a variable":   {"FROM base\nARG A=https://example.com\nADD $A/x /", "not a file of the context", 3},
		"out of the context":         {"FROM base\nCOPY ../../etc/passwd /", "leads out of the context", 2},
		"out by a variable":          {"FROM base\nARG A=..\nCOPY $A/x /", "leads out of the context", 3},
		"out by detours":             {"FROM base\nCOPY a/../../x /", "leads out of the context", 2},
		"the directory above":        {"FROM base\nCOPY .. /", "leads out of the context", 2},
		"several to a file":          {"FROM base\nCOPY a b c", "must end with a slash", 2},
		"no destination":             {"FROM base\nCOPY a", "must have sources and a destination", 2},
		"to what is not seen":        {"FROM base\nCOPY a /workspace/a", "not seen in sandboxes", 2},
		"to a home":                  {"FROM base\nWORKDIR /home/user\nCOPY a .", "not seen in sandboxes", 3},
		"a text to copy":             {"FROM base\nCOPY <<EOF /x\na\nEOF", "is not supported", 2},
		"a text without an end":      {"FROM base\nRUN <<EOF\na", "unterminated heredoc", 2},
		"a text with a program":      {"FROM base\nRUN <<EOF\n#!/usr/bin/python3\nEOF", "#!", 2},
		"another platform":           {"FROM --platform=linux/s390x base", "this machine is linux/amd64", 1},
		"an empty image":             {"ARG A\nFROM $A", "FROM has no image", 2},
		"a stage of its own":         {"FROM base AS a\nCOPY --from=a x /y", "copy from itself", 2},
		"a stage below":              {"FROM base\nCOPY --from=1 x /y\nFROM base", "no stage 1 above", 2},
		"a stage twice":              {"FROM base AS a\nFROM base AS A", "already", 2},
		"a mode of words":            {"FROM base\nCOPY --chmod=u+s a b", "--chmod must be a number", 2},
		"patterns":                   {"FROM base\nCOPY --exclude=a b c", "is not supported", 2},
		"no list":                    {"FROM base\nSHELL bash -c", "SHELL must be a list", 2},
		"no variable":                {"FROM base\nENV A-B=c", "no name of a variable", 2},
		"a replacement":              {"FROM base\nARG A=x\nENV B=${A//x/yyyy}", "is not supported", 3},
		"an unknown image":           {"FROM base\nFROM other", "no image other", 2},
		"too many stages":            {strings.Repeat("FROM base\n", 40), "more than 32 stages", 33},
		"too many instructions":      {"FROM base\n" + strings.Repeat("RUN x\n", 600), "more than 500 instructions", 0},
		"too long":                   {"FROM base\n#" + strings.Repeat("x", 300<<10), "more than", 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dockerfile.Read(t.Context(), []byte(test.text), options(nil))
			assert.ErrorContains(t, err, test.says)
			assert.Check(t, len(err.Error()) < 400)
			if test.line > 0 {
				assert.ErrorContains(t, err, fmt.Sprintf("line %d: ", test.line))
			}
		})
	}
}

func TestVariablesDoNotGrowWithoutBound(t *testing.T) {
	doubling := "FROM base\nENV A=0123456789abcdef\n"
	for range 40 {
		doubling += "ENV A=$A$A\n"
	}
	for name, text := range map[string]string{
		"doubling":     doubling,
		"as arguments": strings.ReplaceAll(doubling, "ENV A=", "ARG A="),
		"in a word":    "FROM base\nENV A=" + strings.Repeat("x", 30<<10) + "\nCOPY " + strings.Repeat("$A", 10<<10) + " /x\n",
		"many": "FROM base\nENV A=" + strings.Repeat("x", 30<<10) + "\n" + func() (lines string) {
			for n := range 40 {
				lines += fmt.Sprintf("ENV B%d=$A\n", n)
			}
			return lines
		}(),
		"within one another": "FROM base\nENV A=" + strings.Repeat("${B:-", 5000) + strings.Repeat("}", 5000) + strings.Repeat("x", 33<<10),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dockerfile.Read(t.Context(), []byte(text), options(nil))
			assert.ErrorContains(t, err, "bytes")
			assert.Check(t, len(err.Error()) < 400, "%d", len(err.Error()))
		})
	}
}

func FuzzAnyDockerfileIsReadOrRefused(f *testing.F) {
	for _, text := range []string{"FROM base\nRUN <<EOF\nx\nEOF", "# escape=`\nFROM base\nENV A=${B:-c} D='x'", "FROM base AS a\nCOPY --from=a [\"b\", \"c\"]", "FROM scratch\nHEALTHCHECK NONE\nONBUILD RUN x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		plan, err := dockerfile.Read(t.Context(), []byte(text), options(map[string]string{"A": "b"}))
		if err != nil {
			return
		}
		for _, s := range plan.Stages {
			for _, step := range s.Steps {
				if step.Copy == nil {
					continue
				}
				for _, source := range step.Copy.Sources {
					assert.Assert(t, source != ".." && !strings.HasPrefix(source, "../") && !strings.HasPrefix(source, "/"), "%q", source)
				}
			}
		}
	})
}
