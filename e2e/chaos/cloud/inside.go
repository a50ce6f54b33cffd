package cloud

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// InsideRequest is the body of the calls about what is in an instance. Each reads the
// fields that it needs.
type InsideRequest struct {
	Instance string `json:"instance"`
	// Argv of a command. Its last argument ends with a Program, as JSON.
	Argv []string `json:"argv,omitempty"`
	// ID of a command.
	ID string `json:"id,omitempty"`
	// Wait has the call wait for the end of the command.
	Wait bool `json:"wait,omitempty"`
	// Stdin is whether a command reads its standard input.
	Stdin bool `json:"stdin,omitempty"`
	// Path of a file or a directory, and Content of a file, or what a shell is to read.
	Path    string `json:"path,omitempty"`
	Content []byte `json:"content,omitempty"`
	// Language of a context.
	Language string `json:"language,omitempty"`
}

// Command is a program that runs in an instance, or has ended. It prints its token, and
// does nothing else; or it is a shell, which runs what it reads, and prints the tokens of
// that.
type Command struct {
	ID      string    `json:"id"`
	Argv    []string  `json:"argv"`
	Token   string    `json:"token"`
	Started time.Time `json:"started"`
	Ends    time.Time `json:"ends"`
	Killed  bool      `json:"killed"`
	// Shell is whether it is one, and Printed what it has printed so far.
	Shell   bool   `json:"shell,omitempty"`
	Printed []byte `json:"printed,omitempty"`
}

// Ended says that the command does not run any more.
func (c Command) Ended() bool { return !time.Now().Before(c.Ends) }

// File is one with its content, or a directory. The cloud does not mind whether a file's
// directories are there.
type File struct {
	Path      string    `json:"path"`
	Content   []byte    `json:"content"`
	Written   time.Time `json:"written"`
	Directory bool      `json:"directory,omitempty"`
}

// Context is an interpreter. It has no state but that it is there.
type Context struct {
	ID       string    `json:"id"`
	Language string    `json:"language"`
	Created  time.Time `json:"created"`
}

// inside is what there is in an instance. It ends with that.
type inside struct {
	paused   bool
	commands []Command
	files    map[string]File
	contexts []Context
	named    int // so many have got names
	// mounts are the volumes of an instance. A volume itself has files and nothing else.
	mounts   []Mount
	ofVolume bool
}

func newInside() *inside { return &inside{files: map[string]File{}} }

// handleInside registers the calls about what is in an instance.
func (c *Cloud) handleInside() {
	for name, do := range map[string]func(e *Effect, in *inside, req InsideRequest) (any, error){
		"start": c.start, "commands": c.commands, "signal": c.signal, "type": c.typed,
		"write": c.write, "read": c.read, "mkdir": c.mkdir,
		"context": c.context, "contexts": c.contexts, "forget": c.forget,
		"pause": c.pause, "resume": c.resume,
	} {
		c.mux.HandleFunc("POST /"+name, handle(c, name, func(r *http.Request, req InsideRequest) (any, error) {
			return c.within(r, req, do)
		}))
	}
	c.mux.HandleFunc("POST /command", handle(c, "command", c.command))
}

// within does something in an instance, which is its effect if do names a kind.
func (c *Cloud) within(r *http.Request, req InsideRequest, do func(e *Effect, in *inside, req InsideRequest) (any, error)) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, found := c.alive[req.Instance]
	in := c.insides[req.Instance]
	if v := c.volumes[req.Instance]; v != nil && ofFiles(r.URL.Path) {
		i, in, found = Instance{ID: v.ID, Labels: v.Labels}, v.in, true
	}
	if !found {
		return nil, refusal{http.StatusNotFound, "no such instance"}
	}
	effect := Effect{Instance: i, Process: r.Header.Get(ProcessHeader), Broker: r.Header.Get(BrokerHeader)}
	answer, err := do(&effect, in, req)
	if err == nil && effect.Kind != "" {
		c.note(effect)
	}
	return answer, err
}

// ofFiles reports whether a call may be about a volume.
func ofFiles(call string) bool { return call == "/write" || call == "/read" || call == "/mkdir" }

// programIn finds the program at the end of a text.
func programIn(text string) (program Program, err error) {
	_, object, _ := strings.Cut(text, "{")
	if err := json.Unmarshal([]byte("{"+object), &program); err != nil {
		return program, refusal{http.StatusBadRequest, err.Error()}
	}
	return program, nil
}

var errPaused = refusal{http.StatusConflict, "the instance is paused"}

func (in *inside) name(kind string) string {
	in.named++
	return fmt.Sprintf("%s-%d", kind, in.named)
}

func (c *Cloud) start(e *Effect, in *inside, req InsideRequest) (any, error) {
	if !in.paused && !strings.Contains(strings.Join(req.Argv, " "), "{") {
		return in.attend(req), nil
	}
	program, err := programIn(req.Argv[len(req.Argv)-1])
	switch {
	case err != nil:
		return nil, err
	case in.paused:
		return nil, errPaused
	}
	e.Kind, e.Argv, e.Program = Started, req.Argv, program
	now := time.Now()
	command := Command{
		ID: in.name("command"), Argv: req.Argv, Token: program.Token,
		Started: now, Ends: now.Add(time.Duration(program.MS) * time.Millisecond),
	}
	in.commands = append(in.commands, command)
	return command, nil
}

// shellLife is how long a shell waits for commands.
const shellLife = 24 * time.Hour

// attend starts what has no program of a client's in it: a shell, or what makes the
// directories that are named behind "set --". Nobody asked for that by a token, so that it
// is no effect.
func (in *inside) attend(req InsideRequest) Command {
	now := time.Now()
	command := Command{ID: in.name("command"), Argv: req.Argv, Started: now, Ends: now, Shell: req.Stdin}
	if req.Stdin {
		command.Ends = now.Add(shellLife)
	}
	_, after, _ := strings.Cut(strings.Join(req.Argv, " "), "set -- ")
	line, _, _ := strings.Cut(after, "\n")
	for _, name := range strings.Fields(line) {
		in.files[name] = File{Path: name, Written: now, Directory: true}
	}
	in.commands = append(in.commands, command)
	return command
}

// typedForm is that of what a front door has a shell read: a mark before a program, the
// program, and a mark behind it.
var typedForm = regexp.MustCompile(`(?s)\\000([0-9a-f]+) b\\0'.*?eval '([^']*)'`)

// typed has a shell run what it reads, at once.
func (c *Cloud) typed(e *Effect, in *inside, req InsideRequest) (any, error) {
	at, err := in.find(req.ID)
	switch {
	case err != nil:
		return nil, err
	case in.paused:
		return nil, errPaused
	case !in.commands[at].Shell || in.commands[at].Ended():
		return nil, refusal{http.StatusConflict, "the command does not read"}
	}
	script := typedForm.FindSubmatch(req.Content)
	if script == nil {
		return nil, refusal{http.StatusBadRequest, "it is not what a shell reads"}
	}
	program, err := programIn(string(script[2]))
	if err != nil {
		return nil, err
	}
	e.Kind, e.Program = Typed, program
	shell := &in.commands[at]
	shell.Printed = fmt.Appendf(slices.Clone(shell.Printed), "\x00%[1]s b\x00%[2]s\n\x00%[1]s 0\x00", script[1], program.Token)
	return struct{}{}, nil
}

func (c *Cloud) commands(_ *Effect, in *inside, _ InsideRequest) (any, error) {
	return slices.Clone(in.commands), nil
}

var errNoCommand = refusal{http.StatusNotFound, "no such command"}

func (in *inside) find(id string) (at int, err error) {
	if at = slices.IndexFunc(in.commands, func(c Command) bool { return c.ID == id }); at < 0 {
		return at, errNoCommand
	}
	return at, nil
}

// command looks at one, or waits for its end.
func (c *Cloud) command(r *http.Request, req InsideRequest) (any, error) {
	look := func(_ *Effect, in *inside, req InsideRequest) (any, error) {
		at, err := in.find(req.ID)
		if err != nil {
			return nil, err
		}
		return in.commands[at], nil
	}
	found, err := c.within(r, req, look)
	if err != nil || !req.Wait {
		return found, err
	}
	command, _ := found.(Command)
	c.mu.Lock()
	stop := c.closing
	c.mu.Unlock()
	timer := time.NewTimer(time.Until(command.Ends))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	case <-stop:
	}
	return c.within(r, req, look)
}

func (c *Cloud) signal(_ *Effect, in *inside, req InsideRequest) (any, error) {
	at, err := in.find(req.ID)
	switch {
	case err != nil:
		return nil, err
	case in.commands[at].Ended():
		return nil, refusal{http.StatusConflict, "the command has ended"}
	}
	in.commands[at].Ends, in.commands[at].Killed = time.Now(), true
	return in.commands[at], nil
}

var errReadOnly = refusal{http.StatusConflict, "the volume is read-only there"}

func (c *Cloud) write(e *Effect, in *inside, req InsideRequest) (any, error) {
	files, at, readOnly := c.files(in, req.Path)
	if readOnly {
		return nil, errReadOnly
	}
	e.Kind, e.Path = Wrote, req.Path
	files[at] = File{Path: in.absolute(req.Path), Content: req.Content, Written: time.Now()}
	return files[at], nil
}

func (c *Cloud) mkdir(e *Effect, in *inside, req InsideRequest) (any, error) {
	files, at, readOnly := c.files(in, req.Path)
	if readOnly {
		return nil, errReadOnly
	}
	if _, found := files[at]; found {
		return nil, refusal{http.StatusConflict, "it is there already"}
	}
	e.Kind, e.Path = Made, req.Path
	files[at] = File{Path: in.absolute(req.Path), Written: time.Now(), Directory: true}
	return files[at], nil
}

// absolute is a path as answers have it.
func (in *inside) absolute(name string) string {
	switch {
	case path.IsAbs(name):
		return name
	case in.ofVolume:
		return path.Join("/", name)
	default:
		return path.Join("/workspace", name)
	}
}

func (c *Cloud) read(_ *Effect, in *inside, req InsideRequest) (any, error) {
	files, at, _ := c.files(in, req.Path)
	file, found := files[at]
	if !found {
		return nil, refusal{http.StatusNotFound, "no such file"}
	}
	file.Path = in.absolute(req.Path)
	return file, nil
}

func (c *Cloud) context(e *Effect, in *inside, req InsideRequest) (any, error) {
	if in.paused {
		return nil, errPaused
	}
	e.Kind = Prepared
	made := Context{in.name("context"), req.Language, time.Now()}
	in.contexts = append(in.contexts, made)
	return made, nil
}

func (c *Cloud) contexts(_ *Effect, in *inside, _ InsideRequest) (any, error) {
	return slices.Clone(in.contexts), nil
}

func (in *inside) hasContext(id string) bool {
	return slices.ContainsFunc(in.contexts, func(c Context) bool { return c.ID == id })
}

func (c *Cloud) forget(_ *Effect, in *inside, req InsideRequest) (any, error) {
	in.contexts = slices.DeleteFunc(in.contexts, func(c Context) bool { return c.ID == req.ID })
	return struct{}{}, nil
}

func (c *Cloud) pause(e *Effect, in *inside, _ InsideRequest) (any, error) {
	if !in.paused {
		in.paused, e.Kind = true, Paused
	}
	return struct{}{}, nil
}

func (c *Cloud) resume(e *Effect, in *inside, _ InsideRequest) (any, error) {
	if in.paused {
		in.paused, e.Kind = false, Resumed
	}
	return struct{}{}, nil
}

// Frozen returns the names of the instances that are paused.
func (c *Cloud) Frozen() (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, in := range c.insides {
		if in.paused {
			ids = append(ids, id)
		}
	}
	return ids
}
