package guest

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/sdk/program/bash"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// shellContext makes the shell of a context of one that was just started: it reads
// what to run from its standard input. Line editing would echo that.
const shellContext = `exec "$BASH" --noprofile --norc --noediting -i <&3 3<&-`

// startShell starts a shell for a context. None is kept ready: one that waits for an
// execution cannot become a context.
func (in *interpreters) startShell() (*process, error) {
	path := in.paths[Bash]
	if path == "" {
		return nil, errUnknownLanguage
	}
	return startProcess(isolation.Spec{
		Argv: []string{path, "--noprofile", "--norc", "-c", shellContext},
		Env:  isolation.CodeEnvironment(nil), Limits: in.limits,
	})
}

// shellSetUp is the first line that the shell of a context reads.
func shellSetUp(cwd string, env map[string]string) []byte {
	return fmt.Appendf(nil, ". %s;%s__context_enter %s\n", filepath.Join(RunDir, "context.sh"), bash.Exports(env), bash.Quote(cwd))
}

// shellRequest is the line for one execution in it, after its renewal if there is one.
func shellRequest(req *providerv1.ExecuteRequest, number int64, renewal *renewal) []byte {
	var b strings.Builder
	if renewal != nil {
		fmt.Fprintf(&b, "RANDOM=%d;%s", newSeed(), bash.Exports(renewal.Env))
	}
	fmt.Fprintf(&b, "__context_execution=%d;", number)
	for _, name := range slices.Sorted(maps.Keys(req.GetEnv())) {
		if bash.IsName(name) {
			fmt.Fprintf(&b, "__context_env %s %s 2>/dev/null;", name, bash.Quote(req.GetEnv()[name]))
		}
	}
	fmt.Fprintf(&b, "eval -- %s </dev/null 4>&-\n", bash.Quote(req.GetCode()))
	return []byte(b.String())
}

// newSeed is drawn from the kernel, which is not a copy: math/rand of the guest is.
func newSeed() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return binary.NativeEndian.Uint32(b[:])
}
