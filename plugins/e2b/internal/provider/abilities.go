package provider

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/stream"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// A template keeps the envd that it was built with, so that one cloud has several
// versions. What a sandbox can do follows from its own.

// version of envd.
type version [3]int

var (
	// oldest is the first that anybody has tried this provider with.
	oldest = version{0, 2, 10}
	// knowsDefaultUser has a user for calls that name none.
	knowsDefaultUser = version{0, 4, 0}
	// closesInput can close the standard input of a process.
	closesInput = version{0, 5, 2}
)

// defaultUser is that of templates that say nothing else.
const defaultUser = "user"

// parseVersion reads a version. What is no such thing, or is not told, counts as a recent
// one: other clouds have numbers of their own.
func parseVersion(text string) (v version, ok bool) {
	parts := strings.SplitN(strings.TrimPrefix(text, "v"), ".", 3)
	if len(parts) != 3 {
		return v, false
	}
	parts[2], _, _ = strings.Cut(parts[2], "-")
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

func (v version) before(other version) bool {
	for i := range v {
		if v[i] != other[i] {
			return v[i] < other[i]
		}
	}
	return false
}

// has says whether the envd of a sandbox is of that version, or a later one.
func (sb *sandbox) has(since version) bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	v, ok := parseVersion(sb.version)
	return !ok || !v.before(since)
}

// tooOld refuses a sandbox whose envd nothing works with.
func (sb *sandbox) tooOld() error {
	if sb.has(oldest) {
		return nil
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sdk.FieldErrorf(sdk.CodeInvalidConfig, "template", "the template has envd %s, and at least %s is needed; build it again", sb.version, oldest)
}

// String is the version as it is written.
func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// errNoEndOfInput says what is missing.
func (sb *sandbox) errNoEndOfInput() error {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sdk.Errorf(sdk.CodeNotSupported, "the template of this instance has envd %s, which cannot close standard input; from %s on it can, so build the template again", sb.version, closesInput)
}

// envdOf is a client whose calls name their user: one that names none belongs to root when
// envd was started again after a crash.
func (sb *sandbox) envdOf() *envd.Client {
	user := sb.p.settings.User
	if user == "" {
		sb.mu.Lock()
		user = sb.user
		sb.mu.Unlock()
	}
	if user == "" && !sb.has(knowsDefaultUser) {
		user = defaultUser
	}
	return envd.New(sb.endpoint(envd.Port, sb.p.streams), user)
}

var userForm = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)

// learnUser asks for the default user of the template, once. If that fails, calls go on
// naming none.
func (sb *sandbox) learnUser(ctx context.Context) {
	if sb.p.settings.User != "" {
		return
	}
	sb.mu.Lock()
	known := sb.user != ""
	sb.mu.Unlock()
	if known {
		return
	}
	text, exit, err := sb.script(ctx, stream.Program{Argv: []string{"id", "-un"}})
	name := strings.TrimSpace(string(text))
	if err != nil || exit != 0 || !userForm.MatchString(name) {
		sb.p.logger.Debug("the user of a sandbox is not known", "sandbox", sb.id, "error", err)
		return
	}
	sb.mu.Lock()
	sb.user = name
	sb.mu.Unlock()
}
