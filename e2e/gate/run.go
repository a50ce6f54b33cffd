package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sandbox-broker/sandbox-broker/e2e/npm"
)

const (
	// gateLimit ends a run of the gate, and says what hung.
	gateLimit = time.Hour
	// packageLimit is how long the tests of one package may take, in the gate and otherwise.
	gatePackageLimit, packageLimit = 20 * time.Minute, 45 * time.Minute
	// lanes is how many units the gate runs at once: many of their tests wait.
	lanes = 2
	// maxReruns is how many failed tests run a second time, in all of a run.
	maxReruns = 3
	// stackTime is how long a test program may take to print its stacks.
	stackTime = 20 * time.Second
)

// runner runs units of tests.
type runner struct {
	root   string // of the repository
	logs   string // the directory of the events
	gate   bool
	out    io.Writer
	reruns atomic.Int64 // that are left
}

// job runs the commands of a unit, or those before the first.
type job struct {
	*runner
	out io.Writer
	// processors is the processor time that the commands have taken, with all they have waited for.
	processors time.Duration
}

// tests runs a unit. It returns an error when a test failed, or when the context ended.
func (r *job) tests(ctx context.Context, u unit) error {
	fmt.Fprintf(r.out, "== %s: %s\n", u.name, u.Purpose)
	if u.Fuzz {
		return r.fuzz(ctx, u)
	}
	file := filepath.Join(r.logs, u.name+".json")
	reruns := int(max(r.reruns.Load(), 0))
	if err := r.command(ctx, u, r.testArgs(u, file, reruns)); err != nil {
		return err
	}
	outcomes, err := read(file)
	if err != nil {
		return err
	}
	if again := len(flakes(outcomes)); r.reruns.Add(int64(-again)) < 0 {
		return fmt.Errorf("more than %d tests have run a second time", maxReruns)
	}
	return unseen(u, outcomes)
}

// testArgs is the command line of a unit, whose failed tests may run again up to a number of them.
func (r *runner) testArgs(u unit, file string, reruns int) []string {
	args := []string{
		filepath.Join(r.root, ".cache", "tools", "gotestsum"), "--format", "pkgname-and-test-fails", "--format-icons", "text",
		"--format-hide-empty-pkg", "--hide-summary", "skipped,output", "--jsonfile", file,
	}
	if !u.Safety && reruns > 0 {
		args = append(args, "--rerun-fails=1", "--rerun-fails-max-failures="+strconv.Itoa(reruns), "--rerun-fails-abort-on-data-race")
	}
	packages := []string{"./..."}
	if u.Module == "" {
		packages = packages[:0]
		for _, pkg := range u.packages {
			packages = append(packages, pkg.path)
		}
	}
	limit := packageLimit
	if r.gate {
		limit = gatePackageLimit
	}
	args = append(args, "--packages", strings.Join(packages, " "), "--", "-vet=off", "-ldflags=-w", "-count=1",
		"-p", strconv.Itoa(max(u.Jobs, 1)), "-timeout", limit.String())
	if u.Parallel > 0 {
		args = append(args, "-parallel", strconv.Itoa(u.Parallel))
	}
	if u.Race {
		args = append(args, raceFlags()...)
	}
	if r.gate && u.Gate == "short" {
		args = append(args, "-short")
	}
	if u.run != "" {
		args = append(args, "-run", u.run)
	}
	if u.Skip != "" {
		args = append(args, "-skip", u.Skip)
	}
	programArgs := u.Args
	if r.gate && len(u.GateArgs) > 0 {
		programArgs = u.GateArgs
	}
	if len(programArgs) > 0 {
		args = append(append(args, "-args"), programArgs...)
	}
	return args
}

// raceFlags are empty where the race detector lacks its C compiler: the tests still run.
func raceFlags() []string {
	if compiler, set := os.LookupEnv("CC"); set && compiler != "" {
		return []string{"-race"}
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		return nil
	}
	return []string{"-race"}
}

// fuzz runs each fuzz target of a unit for a minute.
func (r *job) fuzz(ctx context.Context, u unit) error {
	var failed []error
	for _, pkg := range u.packages {
		for _, target := range pkg.fuzz {
			args := []string{"go", "test", "-vet=off", "-run", "^$", "-fuzz", "^" + target + "$", "-fuzztime", "1m", pkg.path}
			if err := r.command(ctx, u, args); err != nil {
				failed = append(failed, fmt.Errorf("%s of %s: %w", target, pkg.path, err))
			}
		}
	}
	return errors.Join(failed...)
}

// command runs a command line of a unit beside what the unit needs.
func (r *job) command(ctx context.Context, u unit, args []string) error {
	// The gate runs beside an engine, or its tests say that there is none.
	if u.With != "" && !r.gate && (u.With != "docker" || os.Getenv("DOCKER_HOST") == "") {
		args = append([]string{filepath.Join(r.root, ".ci", "with-"+u.With)}, args...)
	}
	if u.Racing && !r.gate {
		args = append([]string{"env", "SANDBOX_BROKER_RACE=1", "SANDBOX_BROKER_BIN=" + filepath.Join(r.root, "bin", "race")}, args...)
	}
	return r.exec(ctx, filepath.Join(r.root, u.Module), args)
}

// exec runs a command. When the context ends first, the test programs print their stacks and end.
func (r *job) exec(ctx context.Context, dir string, args []string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, r.out, r.out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", args[0], err)
	}
	var exit error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		exit = cmd.Wait()
		if state := cmd.ProcessState; state != nil {
			r.processors += state.UserTime() + state.SystemTime()
		}
	}()
	select {
	case <-ended:
		return exit
	case <-ctx.Done():
	}
	for _, pid := range testPrograms(cmd.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGQUIT)
	}
	stacks := time.NewTimer(stackTime)
	defer stacks.Stop()
	select {
	case <-ended:
	case <-stacks.C:
		// A wrapper removes what it has started.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		stacks.Reset(stackTime)
		select {
		case <-ended:
		case <-stacks.C:
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
		}
	}
	return context.Cause(ctx)
}

// testPrograms are the processes of a group that go test has built.
func testPrograms(group int) []int {
	var some []int
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		program, err := os.Readlink(filepath.Join("/proc", entry.Name(), "exe"))
		if err != nil || !strings.HasSuffix(strings.TrimSuffix(program, " (deleted)"), ".test") {
			continue
		}
		if of, err := syscall.Getpgid(pid); err == nil && of == group {
			some = append(some, pid)
		}
	}
	return some
}

// unseen returns an error that names the tests of a unit that did not begin: one that ends its
// program early would hide them.
func unseen(u unit, outcomes []*outcome) error {
	seen := map[string]bool{}
	for _, o := range outcomes {
		seen[o.name] = true
	}
	var lacking []string
	for _, pkg := range u.packages {
		for _, test := range pkg.tests {
			if name := strings.TrimPrefix(pkg.path, "./") + " " + test; u.selects(test) && !seen[name] {
				lacking = append(lacking, name)
			}
		}
	}
	if len(lacking) > 0 {
		return fmt.Errorf("these tests did not run:\n  %s", strings.Join(lacking, "\n  "))
	}
	return nil
}

// downloads are tried so often.
const downloadTries = 3

// download fetches the modules, and the packages of npm that the units need, before the first test,
// so that no test waits for a registry.
func (r *job) download(ctx context.Context, chosen []unit) (err error) {
	for range downloadTries {
		if err = r.exec(ctx, r.root, []string{"go", "mod", "download"}); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("download the modules: %w", err)
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return nil // tests say so
	}
	locks, err := git(ctx, r.root, "ls-files", "*package-lock.json")
	if err != nil {
		return err
	}
	tested := map[string]bool{}
	for _, u := range chosen {
		for _, pkg := range u.packages {
			tested[strings.TrimPrefix(pkg.path, "./")] = true
		}
	}
	for lock := range strings.FieldsSeq(locks) {
		if of, _, testdata := strings.Cut(lock, "/testdata/"); testdata && !tested[of] {
			continue
		}
		if _, err := npm.Fetch(ctx, filepath.Join(r.root, filepath.Dir(lock))); err != nil {
			return fmt.Errorf("download the packages of %s: %w", lock, err)
		}
	}
	return nil
}

// compile compiles the tests of all units before the first runs, so that no test waits for a
// compiler.
func (r *job) compile(ctx context.Context, all []unit) error {
	for _, race := range []bool{false, true} {
		args := []string{"go", "list", "-export", "-test", "-deps", "-f", "{{if .Error}}{{.Error}}{{end}}"}
		if race {
			args = append(args, raceFlags()...)
		}
		before := len(args)
		for _, u := range all {
			if u.Race != race {
				continue
			}
			for _, pkg := range u.packages {
				args = append(args, pkg.path)
			}
		}
		if len(args) == before {
			continue
		}
		slices.Sort(args[before:])
		if err := r.exec(ctx, r.root, append(args[:before], slices.Compact(args[before:])...)); err != nil {
			return fmt.Errorf("compile the tests: %w", err)
		}
	}
	return nil
}

// record is what is kept of the last green run of a unit.
type record struct {
	Commit  string    `json:"commit"`
	Tree    string    `json:"tree"`
	Seconds float64   `json:"seconds"`
	At      time.Time `json:"at"`
}

// recordFile is where the record of a unit is kept.
func recordFile(unit string) (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find the state directory: %w", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "sandbox-broker", "gate", "parts", unit), nil
}

// lastGreen returns the record of a unit; ok is false if there is none.
func lastGreen(unit string) (rec record, ok bool, err error) {
	file, err := recordFile(unit)
	if err != nil {
		return record{}, false, err
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return record{}, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &rec)
	}
	if err != nil {
		return record{}, false, fmt.Errorf("read the last green run of %s: %w", unit, err)
	}
	return rec, true, nil
}

// keep replaces the record of a unit.
func (rec record) keep(unit string) error {
	file, err := recordFile(unit)
	if err != nil {
		return err
	}
	text, err := json.Marshal(rec)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err == nil {
		err = os.WriteFile(file+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		return fmt.Errorf("keep the green run of %s: %w", unit, err)
	}
	return nil
}

// tree is the commit and the tree of a work tree without changes; both are empty if there are
// changes.
func tree(ctx context.Context, root string) (commit, hash string, err error) {
	changes, err := git(ctx, root, "status", "--porcelain")
	if err != nil || changes != "" {
		return "", "", err
	}
	both, err := git(ctx, root, "rev-parse", "HEAD", "HEAD^{tree}")
	if err != nil {
		return "", "", err
	}
	commit, hash, _ = strings.Cut(both, "\n")
	return commit, hash, nil
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
