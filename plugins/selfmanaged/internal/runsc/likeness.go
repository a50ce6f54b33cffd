package runsc

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// likeness identifies what a bundle starts a sandbox with: its file systems and its limits.
// gVisor does not look at where these come from when it restores one, and a process in it
// would find another file in the place of one that it has open. Left out is what each sandbox
// has of its own, and where the file system is that all share.
func (r *Runtime) likeness(bundle string) (string, error) {
	text, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return "", err
	}
	var spec specs.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		return "", fmt.Errorf("read the bundle: %w", err)
	}
	spec.Linux.CgroupsPath, spec.Process.Env = "", nil
	if text, err = json.Marshal(spec); err != nil {
		return "", err
	}
	shared := regexp.MustCompile(regexp.QuoteMeta(r.shared.parent) + `/[0-9]+`)
	sum := sha256.Sum256(shared.ReplaceAll(text, []byte("shared")))
	return hex.EncodeToString(sum[:]), nil
}
