package providertest_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest/internal/local"
)

// forgiving takes an error of one code for a success.
func forgiving(err error, code sdk.Code) error {
	if sdk.CodeOf(err) == code {
		return nil
	}
	return err
}

func TestWrongCapabilitiesAreFound(t *testing.T) {
	checkMutations(t, map[string]mutation{
		"one that is claimed and refused": {among: "capabilities/", fails: []string{"files is there if it is claimed, and else refused"}, wraps: changing(func(c *capable) {
			c.stat = func(sdk.FileInfo, error) (sdk.FileInfo, error) {
				return sdk.FileInfo{}, sdk.NotSupported("local", sdk.CapabilityFiles)
			}
		})},
		"one that takes unknown instances": {among: "capabilities/", fails: []string{"pause is there if it is claimed, and else refused"}, wraps: changing(func(c *capable) {
			c.pause = func(context.Context, string) error { return nil }
		})},
	})
}

func TestWrongInterruptsAreFound(t *testing.T) {
	checkMutations(t, map[string]mutation{
		"nothing happens": {
			among: "interrupt/(interrupted|code)", patience: 0.1, fails: []string{"interrupt/interrupted code ends as cancelled, with its output so far", "interrupt/code that ignores the interrupt is killed"},
			wraps: changing(func(c *capable) { c.interrupt = func(context.Context, string, string) error { return nil } }),
		},
		"a failure of the code": {
			among: "interrupt/(interrupted|code)", fails: []string{"interrupt/interrupted code ends as cancelled, with its output so far", "interrupt/code that ignores the interrupt is killed"},
			wraps: changing(func(c *capable) {
				c.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
					result, err := c.Provider.Execute(ctx, req, out)
					if result.Status == sdk.StatusCancelled {
						result.Status = sdk.StatusFailed
					}
					return result, err
				}
			}),
		},
		"executions that nobody knows": {
			among: "interrupt/", fails: []string{"an execution that does not run is not found", "an execution that has ended is not found"},
			wraps: changing(func(c *capable) {
				c.interrupt = func(ctx context.Context, id, execution string) error {
					return forgiving(c.Provider.Interrupt(ctx, id, execution), sdk.CodeNotFound)
				}
			}),
		},
		"the instance ends": {
			among: "interrupt/(the instance|an interrupt is)", fails: []string{"interrupt/the instance goes on after an interrupt", "interrupt/an interrupt is for one execution"},
			wraps: changing(func(c *capable) {
				c.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
					result, err := c.Provider.Execute(ctx, req, out)
					if result.Status == sdk.StatusCancelled {
						err = errors.Join(err, c.Destroy(ctx, req.InstanceID))
					}
					return result, err
				}
			}),
		},
	})
}

func TestWrongContextsAreFound(t *testing.T) {
	const group = "contexts/python/"
	checkMutations(t, map[string]mutation{
		"no state": {among: group + "a context keeps", fails: []string{" its state"}, wraps: changing(func(c *capable) {
			c.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				result, err := c.Provider.Execute(ctx, req, out)
				if req.ContextID != "" {
					err = errors.Join(err, c.RestartContext(ctx, req.InstanceID, req.ContextID))
				}
				return result, err
			}
		})},
		"one context for all": {among: group + "two contexts", fails: []string{" have states of their own"}, wraps: changing(func(c *capable) {
			first := map[string]sdk.CodeContext{}
			c.createContext = func(ctx context.Context, req sdk.CreateContextRequest) (sdk.CodeContext, error) {
				if made, ok := first[req.InstanceID]; ok {
					return made, nil
				}
				made, err := c.Provider.CreateContext(ctx, req)
				first[req.InstanceID] = made
				return made, err
			}
		})},
		"a restart that keeps the state": {
			among: group + "a restart", patience: 0.3, fails: []string{" forgets the state and keeps the context", " ends what runs"},
			wraps: changing(func(c *capable) { c.restart = func(context.Context, string, string) error { return nil } }),
		},
		"a context that cannot be deleted twice": {among: group + "a deleted", fails: []string{" context is not found"}, wraps: changing(func(c *capable) {
			c.deleteContext = func(ctx context.Context, id, name string) error {
				list, err := c.ListContexts(ctx, id)
				if err == nil && !slices.ContainsFunc(list, func(l sdk.CodeContext) bool { return l.ID == name }) {
					return sdk.FieldErrorf(sdk.CodeNotFound, "context_id", "no such context")
				}
				return errors.Join(err, c.Provider.DeleteContext(ctx, id, name))
			}
		})},
		"unknown contexts without a field": {among: group + "unknown", fails: []string{" contexts are not found"}, wraps: changing(func(c *capable) {
			c.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				result, err := c.Provider.Execute(ctx, req, out)
				if sdk.CodeOf(err) == sdk.CodeNotFound {
					err = sdk.Errorf(sdk.CodeNotFound, "no")
				}
				return result, err
			}
		})},
		"no directory and no variables": {among: group + "a restart forgets", fails: []string{" the state and keeps the context"}, wraps: changing(func(c *capable) {
			c.createContext = func(ctx context.Context, req sdk.CreateContextRequest) (sdk.CodeContext, error) {
				req.Env = nil
				return c.Provider.CreateContext(ctx, req)
			}
		})},
		"state that is lost in silence": {among: group + "a timeout", fails: []string{" leaves the context usable and says what became of the state"}, wraps: changing(func(c *capable) {
			c.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				result, err := c.Provider.Execute(ctx, req, out)
				if result.Status == sdk.StatusTimeout {
					result.Detail = ""
					err = errors.Join(err, c.RestartContext(ctx, req.InstanceID, req.ContextID))
				}
				return result, err
			}
		})},
		"no directory for artifacts": {among: group + "the directory", fails: []string{" of artifacts is there before each execution"}, wraps: changing(func(c *capable) {
			c.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				req.Code = withoutDirectory + req.Code
				return c.Provider.Execute(ctx, req, out)
			}
		})},
		"a main that is called as in a script": {among: group + "a main", fails: []string{" that is only defined is not called"}, wraps: changing(func(c *capable) {
			c.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				if req.Arguments == nil {
					req.Arguments = []byte("{}")
				}
				return c.Provider.Execute(ctx, req, out)
			}
		})},
	})
}

func TestWrongCommandsAreFound(t *testing.T) {
	reading := func(change func(*sdk.Command)) func(*local.Provider) sdk.Provider {
		return changing(func(c *capable) {
			c.read = func(ctx context.Context, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
				command, err := c.Provider.ReadCommand(ctx, req, out)
				change(&command)
				return command, err
			}
		})
	}
	starting := func(change func(*sdk.CommandRequest)) func(*local.Provider) sdk.Provider {
		return changing(func(c *capable) {
			c.start = func(ctx context.Context, req sdk.CommandRequest) (sdk.Command, error) {
				change(&req)
				return c.Provider.StartCommand(ctx, req)
			}
		})
	}
	checkMutations(t, map[string]mutation{
		"no exit code": {among: "commands/", fails: []string{"an exit code arrives as it is", "a signal reaches it"}, wraps: reading(func(c *sdk.Command) { c.ExitCode = 0 })},
		"always success": {among: "commands/", fails: []string{"an exit code arrives as it is", "a signal reaches it", "SIGKILL ends it with all that it started", "it is killed at its timeout"}, wraps: reading(func(c *sdk.Command) {
			if c.State != sdk.CommandRunning {
				c.State = sdk.CommandSucceeded
			}
		})},
		"no variables": {among: "commands/", fails: []string{"it gets directory and variables that were asked for"}, wraps: starting(func(r *sdk.CommandRequest) { r.Env = nil })},
		"no directory": {among: "commands/", fails: []string{"it gets directory and variables that were asked for"}, wraps: starting(func(r *sdk.CommandRequest) { r.Cwd = "" })},
		"no timeout":   {among: "commands/it is killed", patience: 0.3, fails: []string{" at its timeout"}, wraps: starting(func(r *sdk.CommandRequest) { r.Timeout = 0 })},
		"all output": {among: "commands/(output is read|an offset)", fails: []string{"commands/output is read from an offset", "commands/an offset behind the end gives nothing, of one that has ended", "commands/an offset that is not reached yet is waited for"}, wraps: changing(func(c *capable) {
			c.read = func(ctx context.Context, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
				offset := req.StdoutOffset
				req.StdoutOffset, req.StderrOffset = 0, 0
				return c.Provider.ReadCommand(ctx, req, func(o sdk.CommandOutput) error { o.Offset += offset; return out(o) })
			}
		})},
		"the first output": {among: "commands/the latest", fails: []string{" output is kept, and offsets tell what is missing"}, wraps: starting(func(r *sdk.CommandRequest) { r.KeepOutput = 10 })},
		"input of any kind": {among: "commands/", fails: []string{"input that is closed takes nothing more"}, wraps: changing(func(c *capable) {
			c.write = func(ctx context.Context, id, command string, data []byte, end bool) error {
				return forgiving(c.Provider.WriteCommand(ctx, id, command, data, end), sdk.CodeConflict)
			}
		})},
		"input that stays open": {among: "commands/its input", patience: 0.3, fails: []string{" is empty unless asked for"}, wraps: starting(func(r *sdk.CommandRequest) { r.Stdin = true })},
		"signals to the dead": {among: "commands/", fails: []string{"one that has ended takes no signal"}, wraps: changing(func(c *capable) {
			c.signal = func(ctx context.Context, id, command, name string) error {
				return forgiving(c.Provider.SignalCommand(ctx, id, command, name), sdk.CodeConflict)
			}
		})},
		"ended commands forgotten": {among: "commands/", fails: []string{"commands are listed, ended ones too"}, wraps: changing(func(c *capable) {
			c.listCommands = func(list []sdk.Command) []sdk.Command {
				return slices.DeleteFunc(list, func(l sdk.Command) bool { return l.State != sdk.CommandRunning })
			}
		})},
		"a program that is not there": {among: "commands/", fails: []string{"a program that is not there is refused"}, wraps: starting(func(r *sdk.CommandRequest) {
			if r.Argv[0] == "no-such-program-of-any-system" {
				r.Argv = []string{"false"}
			}
		})},
		"a shell for all": {among: "commands/arguments", fails: []string{" arrive unchanged"}, wraps: starting(func(r *sdk.CommandRequest) {
			line := ""
			for _, word := range r.Argv {
				line += word + " "
			}
			r.Argv = []string{"sh", "-c", line}
		})},
	})
}

func TestWrongFilesAreFound(t *testing.T) {
	checkMutations(t, map[string]mutation{
		"files that are replaced bit by bit": {among: "files/content", fails: []string{" that breaks off changes nothing"}, wraps: changing(func(c *capable) {
			c.writeFile = func(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
				// The beginning is in the file before the caller can break off.
				some := make([]byte, 64<<10)
				n, err := io.ReadFull(content, some)
				ctx = context.WithoutCancel(ctx)
				if _, writeErr := c.Provider.WriteFile(ctx, req, &replay{some[:n]}); writeErr != nil {
					return sdk.FileInfo{}, writeErr
				}
				all := some[:n]
				if err == nil {
					var rest []byte
					rest, err = io.ReadAll(content)
					all = append(all, rest...)
				}
				if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
					err = nil
				}
				info, writeErr := c.Provider.WriteFile(ctx, req, &replay{all})
				return info, errors.Join(err, writeErr)
			}
		})},
		"one mode": {among: "files/", fails: []string{"the mode is the one that was asked for"}, wraps: changing(func(c *capable) {
			c.writeFile = func(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
				req.Mode = 0o644
				return c.Provider.WriteFile(ctx, req, content)
			}
		})},
		"parents made always": {among: "files/", fails: []string{"missing parents are made only when asked for"}, wraps: changing(func(c *capable) {
			c.writeFile = func(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
				req.MakeParents = true
				return c.Provider.WriteFile(ctx, req, content)
			}
		})},
		"whole files": {among: "files/", fails: []string{"a part of a file is read"}, wraps: changing(func(c *capable) {
			c.readFile = func(ctx context.Context, req sdk.ReadFileRequest) (sdk.FileInfo, io.ReadCloser, error) {
				req.Offset, req.Length = 0, 0
				return c.Provider.ReadFile(ctx, req)
			}
		})},
		"moves that replace": {among: "files/", fails: []string{"a move replaces only when asked to"}, wraps: changing(func(c *capable) {
			c.move = func(ctx context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
				req.Overwrite = true
				return c.Provider.MoveFile(ctx, req)
			}
		})},
		"directories removed always": {among: "files/", fails: []string{"a directory with files is removed only when asked to"}, wraps: changing(func(c *capable) {
			c.remove = func(ctx context.Context, id, path string, _ bool) error {
				return c.Provider.RemoveFile(ctx, id, path, true)
			}
		})},
		"a list without end": {among: "files/", fails: []string{"a directory is listed in the order of paths", "a list obeys its limit and says so"}, wraps: changing(func(c *capable) {
			c.listFiles = func(ctx context.Context, req sdk.ListFilesRequest, found func([]sdk.FileInfo) error) (bool, error) {
				req.Depth = 99
				return c.Provider.ListFiles(ctx, req, found)
			}
		})},
		"a list in any order": {
			among: "files/a (directory is listed|list)", fails: []string{"files/a directory is listed in the order of paths", "files/a list obeys its glob", "files/a list obeys its limit and says so"},
			wraps: changing(func(c *capable) {
				c.listFiles = func(ctx context.Context, req sdk.ListFilesRequest, found func([]sdk.FileInfo) error) (bool, error) {
					var all []sdk.FileInfo
					cut, err := c.Provider.ListFiles(ctx, req, func(list []sdk.FileInfo) error { all = append(all, list...); return nil })
					slices.Reverse(all)
					return cut, errors.Join(err, found(all))
				}
			}),
		},
		"a list that is cut in silence": {among: "files/", fails: []string{"a list obeys its limit and says so"}, wraps: changing(func(c *capable) {
			c.listFiles = func(ctx context.Context, req sdk.ListFilesRequest, found func([]sdk.FileInfo) error) (bool, error) {
				_, err := c.Provider.ListFiles(ctx, req, found)
				return false, err
			}
		})},
		"no globs": {among: "files/", fails: []string{"a list obeys its glob"}, wraps: changing(func(c *capable) {
			c.listFiles = func(ctx context.Context, req sdk.ListFilesRequest, found func([]sdk.FileInfo) error) (bool, error) {
				req.Glob = ""
				return c.Provider.ListFiles(ctx, req, found)
			}
		})},
		"directories made once": {among: "files/", fails: []string{"directories are made, and again"}, wraps: changing(func(c *capable) {
			c.makeDirectory = func(ctx context.Context, id, path string, mode fs.FileMode) (sdk.FileInfo, error) {
				if _, err := c.Provider.StatFile(ctx, id, path); err == nil {
					return sdk.FileInfo{}, sdk.Errorf(sdk.CodeConflict, "it exists")
				}
				return c.Provider.MakeDirectory(ctx, id, path, mode)
			}
		})},
		"links followed": {among: "files/", fails: []string{"a symbolic link is described as such"}, wraps: changing(func(c *capable) {
			c.stat = func(info sdk.FileInfo, err error) (sdk.FileInfo, error) {
				if info.Type == sdk.FileSymlink {
					info.Type, info.Target = sdk.FileRegular, ""
				}
				return info, err
			}
		})},
		"the files of the host": {among: "files/no path leads to the", fails: []string{" host"}, wraps: changing(func(c *capable) {
			c.stat = func(info sdk.FileInfo, err error) (sdk.FileInfo, error) {
				if err != nil { // it looks there
					info, err = sdk.FileInfo{Path: os.TempDir(), Type: sdk.FileDirectory}, nil
				}
				return info, err
			}
		})},
	})
}

// replay is content that does not tell how it ended.
type replay struct{ rest []byte }

func (r *replay) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func TestWrongFileToolsAreFound(t *testing.T) {
	checkMutations(t, map[string]mutation{
		"patterns as text": {among: "file_search/", fails: []string{"a pattern is a regular expression, or plain text"}, wraps: changing(func(c *capable) {
			c.search = func(ctx context.Context, req sdk.SearchFilesRequest, found func([]sdk.FileMatch) error) (bool, error) {
				req.Literal = true
				return c.Provider.SearchFiles(ctx, req, found)
			}
		})},
		"every file": {among: "file_search/", fails: []string{"a search obeys its glob"}, wraps: changing(func(c *capable) {
			c.search = func(ctx context.Context, req sdk.SearchFilesRequest, found func([]sdk.FileMatch) error) (bool, error) {
				req.Glob = ""
				return c.Provider.SearchFiles(ctx, req, found)
			}
		})},
		"a search that is cut in silence": {among: "file_search/", fails: []string{"a search obeys its limit and says so"}, wraps: changing(func(c *capable) {
			c.search = func(ctx context.Context, req sdk.SearchFilesRequest, found func([]sdk.FileMatch) error) (bool, error) {
				_, err := c.Provider.SearchFiles(ctx, req, found)
				return false, err
			}
		})},
		"lines from 0": {among: "file_search/", fails: []string{"lines that match are found, in the order of paths"}, wraps: changing(func(c *capable) {
			c.search = func(ctx context.Context, req sdk.SearchFilesRequest, found func([]sdk.FileMatch) error) (bool, error) {
				return c.Provider.SearchFiles(ctx, req, func(list []sdk.FileMatch) error {
					for i := range list {
						list[i].Line--
					}
					return found(list)
				})
			}
		})},
		"replacements not counted": {among: "file_search/", fails: []string{"a text is replaced and counted"}, wraps: changing(func(c *capable) {
			c.replace = func(list []sdk.FileReplacement) []sdk.FileReplacement {
				for i := range list {
					list[i].Count = min(list[i].Count, 1)
				}
				return list
			}
		})},
		"nothing that changes": {
			among: "file_watch/(changes|what)", patience: 0.1, fails: []string{"file_watch/changes are told", "file_watch/what code changes is told"},
			wraps: changing(func(c *capable) {
				c.watch = func(ctx context.Context, req sdk.WatchFilesRequest, ready func() error, _ func([]sdk.FileChange) error) error {
					return c.Provider.WatchFiles(ctx, req, ready, func([]sdk.FileChange) error { return nil })
				}
			}),
		},
		"one directory": {among: "file_watch/directories", patience: 0.1, fails: []string{" below are watched when asked for, new ones too"}, wraps: changing(func(c *capable) {
			c.watch = func(ctx context.Context, req sdk.WatchFilesRequest, ready func() error, changed func([]sdk.FileChange) error) error {
				req.Recursive = false
				return c.Provider.WatchFiles(ctx, req, ready, changed)
			}
		})},
		"a mode that is answered and not set": {
			among: "file_mode/", fails: []string{"a file has the mode that was set", "every right can be taken away and given back", "a directory has the mode that was set, and what is in it its own", "a symbolic link is followed"},
			wraps: changing(func(c *capable) {
				c.setMode = func(ctx context.Context, id, path string, mode fs.FileMode) (sdk.FileInfo, error) {
					info, err := c.Provider.StatFile(ctx, id, path)
					info.Mode = mode
					return info, err
				}
			}),
		},
		"no mode without rights": {among: "file_mode/", fails: []string{"every right can be taken away and given back"}, wraps: changing(func(c *capable) {
			c.setMode = func(ctx context.Context, id, path string, mode fs.FileMode) (sdk.FileInfo, error) {
				if mode == 0 {
					mode = 0o644
				}
				return c.Provider.SetFileMode(ctx, id, path, mode)
			}
		})},
		"modes of files only": {among: "file_mode/", fails: []string{"a directory has the mode that was set, and what is in it its own"}, wraps: changing(func(c *capable) {
			c.setMode = func(ctx context.Context, id, path string, mode fs.FileMode) (sdk.FileInfo, error) {
				if info, err := c.Provider.StatFile(ctx, id, path); err != nil || info.Type == sdk.FileDirectory {
					return info, err
				}
				return c.Provider.SetFileMode(ctx, id, path, mode)
			}
		})},
		"modes of links refused": {among: "file_mode/", fails: []string{"a symbolic link is followed"}, wraps: changing(func(c *capable) {
			c.setMode = func(ctx context.Context, id, path string, mode fs.FileMode) (sdk.FileInfo, error) {
				if info, err := c.Provider.StatFile(ctx, id, path); err == nil && info.Type == sdk.FileSymlink {
					return info, sdk.Errorf(sdk.CodeConflict, "is a symbolic link")
				}
				return c.Provider.SetFileMode(ctx, id, path, mode)
			}
		})},
		"modes of what is not there": {among: "file_mode/", fails: []string{"what is not there is not found", "no path leads to the host"}, wraps: changing(func(c *capable) {
			c.setMode = func(ctx context.Context, id, path string, mode fs.FileMode) (sdk.FileInfo, error) {
				info, err := c.Provider.SetFileMode(ctx, id, path, mode)
				if e, ok := errors.AsType[*sdk.Error](err); ok && e.Code == sdk.CodeNotFound {
					return sdk.FileInfo{Path: "/workspace/" + path, Type: sdk.FileRegular, Mode: mode}, nil
				}
				return info, err
			}
		})},
		"the whole directory": {among: "archives/", fails: []string{"parts of a directory come as an archive"}, wraps: changing(func(c *capable) {
			c.pack = func(ctx context.Context, req sdk.ReadArchiveRequest) (io.ReadCloser, error) {
				req.Paths = nil
				return c.Provider.ReadArchive(ctx, req)
			}
		})},
		"entries that lead out": {
			among: "archives/", fails: []string{"entries that lead out are refused", "entries through a symbolic link are refused", "an archive without its end is refused"},
			wraps: changing(func(c *capable) {
				c.unpack = func(ctx context.Context, id, directory string, content io.Reader) (sdk.ArchiveSummary, error) {
					summary, err := c.Provider.WriteArchive(ctx, id, directory, content)
					return summary, forgiving(err, sdk.CodeInvalidRequest)
				}
			}),
		},
	})
}

func TestOtherWrongCapabilitiesAreFound(t *testing.T) {
	checkMutations(t, map[string]mutation{
		"a connection that ends with its dialling": {among: "ports/", fails: []string{"a connection outlives the context of its dialling", "a server of the instance answers", "much data passes both ways", "a connection ends with its instance"}, wraps: changing(func(c *capable) {
			c.dial = func(ctx context.Context, id string, port uint16) (net.Conn, error) {
				conn, err := c.Provider.DialPort(ctx, id, port)
				if err == nil {
					conn.Close()
				}
				return conn, err
			}
		})},
		"a closed port as an unknown instance": {among: "ports/", fails: []string{"a port where nobody listens is refused"}, wraps: changing(func(c *capable) {
			c.dial = func(ctx context.Context, id string, port uint16) (net.Conn, error) {
				conn, err := c.Provider.DialPort(ctx, id, port)
				if err != nil {
					err = sdk.Errorf(sdk.CodeNotFound, "no")
				}
				return conn, err
			}
		})},
		"a pause in name only": {among: "pause/", fails: []string{"a paused instance executes nothing", "a command stands still and goes on"}, wraps: changing(func(c *capable) {
			c.pause = func(ctx context.Context, id string) error {
				return errors.Join(c.Provider.Pause(ctx, id), c.Resume(ctx, id))
			}
		})},
		"a pause that says one thing and then the other": {among: "pause/", fails: []string{"a pause says whether it has released, and says it again"}, wraps: changing(func(c *capable) {
			said := false
			c.released = func() bool {
				said = !said
				return said
			}
		})},
		"a pause that loses files": {among: "pause/", fails: []string{"files stay over a pause"}, wraps: changing(func(c *capable) {
			c.pause = func(ctx context.Context, id string) error {
				err := c.RemoveFile(ctx, id, "providertest.txt", false)
				return errors.Join(forgiving(err, sdk.CodeNotFound), c.Provider.Pause(ctx, id))
			}
		})},
		"a time that is told and not kept": {among: "set_ttl/its end is moved", patience: 0.3, fails: []string{" ahead", " back"}, wraps: changing(func(c *capable) {
			c.setTTL = func(_ context.Context, _ string, ttl time.Duration) (time.Time, error) {
				return time.Now().Add(ttl), nil
			}
		})},
		"CPU time that goes back": {among: "metrics/", fails: []string{"used CPU time grows with use"}, wraps: changing(func(c *capable) {
			used := time.Hour
			c.meter = func(m sdk.InstanceMetrics) sdk.InstanceMetrics {
				used -= time.Second
				m.CPUTime = used
				return m
			}
		})},
		"memory in kilobytes of a limit in bytes": {among: "metrics/", fails: []string{"nothing is above its limit by far"}, wraps: changing(func(c *capable) {
			c.meter = func(m sdk.InstanceMetrics) sdk.InstanceMetrics {
				m.Memory, m.MemoryLimit = 1<<30, 1<<20
				return m
			}
		})},
		"nothing is installed": {among: "packages/python/a package is", fails: []string{" there once it is installed"}, wraps: changing(func(c *capable) {
			c.install = func(context.Context, sdk.InstallPackagesRequest, sdk.Output) (sdk.ExecuteResult, error) {
				return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
			}
		})},
		"a check that is forgotten": {among: "packages/python/what", fails: []string{" is refused beforehand is refused by the installation"}, wraps: changing(func(c *capable) {
			c.install = func(context.Context, sdk.InstallPackagesRequest, sdk.Output) (sdk.ExecuteResult, error) {
				return sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 1}, nil
			}
		})},
		"a check of nothing": {among: "packages/python/what can", fails: []string{" be installed is not refused beforehand"}, wraps: func(p *local.Provider) sdk.Provider { return stern{p} }},
		"a failure in other words": {among: "packages/python/", fails: []string{"a package that does not exist fails and says why"}, wraps: changing(func(c *capable) {
			c.install = func(ctx context.Context, req sdk.InstallPackagesRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				return c.Provider.InstallPackages(ctx, req, outputs{Output: out, stderr: func([]byte) error { return out.Stderr([]byte("error\n")) }})
			}
		})},
		"artifacts of the past": {among: "artifacts/bash/", fails: []string{"what an earlier execution wrote does not come again", "what is written below artifacts comes back", "an artifact that is too large comes without its data", "the directory is there before the code", "the directory is there again after code has removed it"}, wraps: changing(func(c *capable) {
			c.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				if req.Artifacts != nil && len(req.Artifacts.Files) == 0 {
					req.Artifacts.Files = []string{"artifacts/figure.txt"}
				}
				return c.Provider.Execute(ctx, req, out)
			}
		})},
		"no artifacts": {
			among: "artifacts/bash/",
			fails: []string{"what is written below artifacts comes back", "a file that was asked for comes back", "files that match a pattern come back", "a pattern reaches into directories", "a pattern that matches nothing is no failure", "an artifact that is too large comes without its data", "more artifacts than allowed are told of", "the directory is there before the code", "the directory is there again after code has removed it", "the directory takes the place of no file"},
			wraps: changing(func(c *capable) {
				c.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
					req.Artifacts = nil
					return c.Provider.Execute(ctx, req, out)
				}
			}),
		},
	})
}

// stern refuses every package beforehand.
type stern struct{ *local.Provider }

func (stern) CheckPackages(context.Context, sdk.Language, []string) error {
	return sdk.FieldErrorf(sdk.CodeInvalidRequest, "requirements", "no")
}
