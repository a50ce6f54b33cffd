package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// The fields of a Refused.
const (
	fieldArgv = "argv"
	fieldCwd  = "cwd"
)

// find enters the directory and finds the program, both with the rights of the
// user that the program will run as: root may enter and see more.
func find(s Spec) (path string, err error) {
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return "", &Refused{Field: fieldArgv, Message: "must name a program"}
	}
	if s.Dir == "" {
		s.Dir = WorkspaceDir
	}
	as := asUser
	if s.Root {
		as = func(do func() error) error { return do() }
	}
	err = as(func() error {
		if err := unix.Chdir(s.Dir); err != nil {
			return &Refused{Field: fieldCwd, Message: fmt.Sprintf("%.200q cannot be entered: %v", s.Dir, err)}
		}
		path, err = lookUp(s.Argv[0], s.Env)
		return err
	})
	return path, err
}

// asUser does something as the unprivileged user. The calls behind it are those
// of this thread alone, which is locked; the Go functions would change all.
func asUser(do func() error) error {
	const same = ^uintptr(0)
	become := func(id uintptr, calls ...uintptr) error {
		for _, call := range calls {
			if _, _, errno := unix.RawSyscall(call, same, id, same); errno != 0 {
				return fmt.Errorf("become user %d: %w", id, errno)
			}
		}
		return nil
	}
	if err := become(UserID, unix.SYS_SETRESGID, unix.SYS_SETRESUID); err != nil {
		return errors.Join(errStuckAsUser, err)
	}
	err := do()
	// The other way round: only root may change its group.
	if back := become(0, unix.SYS_SETRESUID, unix.SYS_SETRESGID); back != nil {
		return errors.Join(err, errStuckAsUser, back)
	}
	return err
}

// errStuckAsUser means that this thread is of no use any more.
var errStuckAsUser = errors.New("the thread cannot become root again")

// lookUp finds a program as execvp does.
func lookUp(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if err := executable(name); err != nil {
			return "", &Refused{Field: fieldArgv, Message: fmt.Sprintf("%.200q cannot be started: %v", name, reason(err))}
		}
		return name, nil
	}
	var path string
	for _, variable := range env {
		if value, ok := strings.CutPrefix(variable, "PATH="); ok {
			path = value
		}
	}
	forbidden := false
	for dir := range strings.SplitSeq(path, ":") {
		if dir == "" {
			dir = "."
		}
		candidate := dir + "/" + name
		switch err := executable(candidate); {
		case err == nil:
			return candidate, nil
		case errors.Is(err, fs.ErrPermission):
			forbidden = true
		}
	}
	if forbidden {
		return "", &Refused{Field: fieldArgv, Message: fmt.Sprintf("%.200q is found along PATH, but may not be executed", name)}
	}
	return "", &Refused{Field: fieldArgv, Message: fmt.Sprintf("there is no program %.200q along PATH", name)}
}

// executable reports why a file cannot be executed.
func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return unix.EISDIR
	case !info.Mode().IsRegular():
		return unix.EACCES
	}
	return unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
}

// reason is an error without the call and the path that os puts before it.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
