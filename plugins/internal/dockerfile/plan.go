package dockerfile

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/command"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// maxStages of one file, those of COPY --from=IMAGE included.
const maxStages = 32

// Base is what an image says of how it is built upon.
type Base struct {
	Env   map[string]string
	Dir   string
	Shell []string
	// Triggers says that it has instructions (ONBUILD) for who builds upon it.
	Triggers bool
}

// Options of Read.
type Options struct {
	// Args are values of ARG.
	Args map[string]string
	// Architecture of the images, as Go names it.
	Architecture string
	// Hidden are directories whose contents no sandbox sees, since something else is mounted
	// there.
	Hidden []string
	// Resolve looks an image up.
	Resolve func(ctx context.Context, image string) (Base, error)
}

// Stage is one FROM with what follows it.
type Stage struct {
	// Image that it begins with, or From, a stage above; neither for nothing.
	Image string
	From  *Stage
	Steps []Step
	// Env is that of programs, at its end.
	Env map[string]string

	name string
	dir  string
	sh   []string
}

// Step changes files.
type Step struct {
	Line int
	// Text is the instruction as it is written, for who looks on.
	Text string
	// One of them is given. Directory is one that is made, if it is not there.
	Run       *Run
	Copy      *Copy
	Directory string
}

// Run is a command to run.
type Run struct {
	Argv []string
	Env  map[string]string
	Dir  string
	// Offline says that it gets no network.
	Offline bool
}

// Plan is what is to be done.
type Plan struct {
	// Stages that are needed for the last, which is what is built.
	Stages []*Stage
	// Notes are what was left out, for who looks on.
	Notes []string
}

// Read makes a plan of a Dockerfile. What it cannot build is an *Error; others are those of
// Options.Resolve.
func Read(ctx context.Context, text []byte, o Options) (*Plan, error) {
	list, escape, err := parse(text)
	if err != nil {
		return nil, err
	}
	lex := shell.NewLex(escape)
	r := &reading{
		o: o, lex: lex, plan: &Plan{}, images: map[string]*Stage{},
		global: &scope{lex: lex, env: map[string]string{}, args: map[string]string{}},
	}
	for name, value := range r.platform() {
		r.global.args[name] = value
	}
	for _, i := range list {
		if err := r.one(ctx, i); err != nil {
			return nil, err
		}
	}
	if r.stage == nil {
		return nil, &Error{Reason: "it has no FROM"}
	}
	r.plan.Stages = needed(r.stage)
	return r.plan, nil
}

// reading is one call of Read.
type reading struct {
	o      Options
	lex    *shell.Lex
	plan   *Plan
	global *scope // of ARG before the first FROM
	images map[string]*Stage
	stage  *Stage
	scope  *scope // of stage
}

// platform are variables that a file may ask for without giving them a value.
func (r *reading) platform() map[string]string {
	all := map[string]string{}
	for _, of := range []string{"TARGET", "BUILD"} {
		all[of+"PLATFORM"], all[of+"OS"], all[of+"ARCH"] = "linux/"+r.o.Architecture, "linux", r.o.Architecture
	}
	return all
}

// ignored are instructions that change nothing of a template, and why.
var ignored = map[string]string{
	command.Label: "", command.Maintainer: "", command.StopSignal: "is not used: the sandbox ends its programs itself",
	command.Expose: "is not needed: every port of an instance can be reached by whoever may", command.Volume: "is not used: instances have volumes when they are created",
	command.Healthcheck: "is not used: the setting ready of the template has a check", command.Cmd: "is not run: the setting start of the template has a program that runs",
	command.Entrypoint: "is not run: the setting start of the template has a program that runs",
	command.User:       "is not used: RUN is root of a sandbox of its own, and code in instances is the user sandbox",
}

func (r *reading) one(ctx context.Context, i instruction) error {
	if i.name != command.From && i.name != command.Arg && r.stage == nil {
		return i.errorf("%s stands before the first FROM", strings.ToUpper(i.name))
	}
	if len(i.heredocs) > 0 && i.name != command.Run {
		return i.errorf("%s of a text within the Dockerfile (<<) is not supported", strings.ToUpper(i.name))
	}
	if note, ok := ignored[i.name]; ok {
		if note != "" {
			r.plan.Notes = append(r.plan.Notes, fmt.Sprintf("line %d: %s %s", i.line, strings.ToUpper(i.name), note))
		}
		return nil
	}
	switch i.name {
	case command.From:
		return r.from(ctx, i)
	case command.Arg:
		return r.arg(i)
	case command.Env:
		return r.env(i)
	case command.Workdir:
		return r.workdir(i)
	case command.Shell:
		if !i.json || len(i.words) == 0 || i.words[0] == "" {
			return i.errorf(`SHELL must be a list, such as ["/bin/bash", "-c"]`)
		}
		r.stage.sh = i.words
		return nil
	case command.Run:
		return r.run(i)
	case command.Copy, command.Add:
		return r.copy(ctx, i)
	default:
		return i.errorf("%s is not supported", strings.ToUpper(i.name))
	}
}

var stageName = regexp.MustCompile(`^[a-z][a-z0-9-_.]*$`)

func (r *reading) from(ctx context.Context, i instruction) error {
	for _, flag := range i.flags {
		of, given := strings.CutPrefix(flag, "--platform=")
		if !given {
			return i.errorf("FROM %s is not supported", quoted(flag))
		}
		platform, err := r.global.word(of)
		if err != nil {
			return i.errorf("%s", err)
		}
		if platform != "linux/"+r.o.Architecture {
			return i.errorf("FROM for %s cannot be built: this machine is linux/%s", quoted(platform), r.o.Architecture)
		}
	}
	if len(i.words) != 1 && (len(i.words) != 3 || !strings.EqualFold(i.words[1], "as")) {
		return i.errorf("FROM must be of the form FROM image, or FROM image AS name")
	}
	image, err := r.global.word(i.words[0])
	if err != nil {
		return i.errorf("%s", err)
	}
	if image == "" {
		return i.errorf("FROM has no image: %s is empty", quoted(i.words[0]))
	}
	s := &Stage{}
	if len(i.words) == 3 {
		if s.name = strings.ToLower(i.words[2]); !stageName.MatchString(s.name) {
			return i.errorf("%s is no name of a stage", quoted(i.words[2]))
		}
		if r.named(s.name) != nil {
			return i.errorf("there is a stage %s already", quoted(s.name))
		}
	}
	if err := r.begin(ctx, i, s, image); err != nil {
		return err
	}
	r.stage = s
	r.scope = &scope{lex: r.lex, env: maps.Clone(s.Env), args: map[string]string{}}
	return nil
}

// begin has a stage begin with an image, or with a stage above.
func (r *reading) begin(ctx context.Context, i instruction, s *Stage, image string) error {
	if r.plan.Stages = append(r.plan.Stages, s); len(r.plan.Stages) > maxStages {
		return i.errorf("there are more than %d stages", maxStages)
	}
	s.sh, s.dir, s.Env = []string{"/bin/sh", "-c"}, "/", map[string]string{}
	if above := r.named(strings.ToLower(image)); above != nil && above != s {
		s.From, s.sh, s.dir, s.Env = above, above.sh, above.dir, maps.Clone(above.Env)
		return nil
	}
	if image == "scratch" {
		return nil
	}
	base, err := r.o.Resolve(ctx, image)
	if err != nil {
		return &ImageError{Line: i.line, Err: err}
	}
	if base.Triggers {
		return i.errorf("the image %s has instructions for who builds upon it (ONBUILD), which are not supported", quoted(image))
	}
	s.Image, s.Env = image, maps.Clone(base.Env)
	if s.Env == nil {
		s.Env = map[string]string{}
	}
	if len(base.Shell) > 0 && base.Shell[0] != "" {
		s.sh = base.Shell
	}
	if path.IsAbs(base.Dir) {
		s.dir = path.Clean(base.Dir)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) { // the image is a stranger's
		if len(name)+len(s.Env[name]) > maxValue {
			return i.errorf("the image %s has a variable of more than %d bytes", quoted(image), maxValue)
		}
	}
	return nil
}

// named is the stage of a name; nil for none.
func (r *reading) named(name string) *Stage {
	for _, s := range r.plan.Stages {
		if s.name != "" && s.name == name {
			return s
		}
	}
	return nil
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (r *reading) arg(i instruction) error {
	for _, word := range i.words {
		name, given, has := strings.Cut(word, "=")
		if !variableName.MatchString(name) {
			return i.errorf("%s is no name of a variable", quoted(name))
		}
		in := r.scope
		if in == nil {
			in = r.global
		}
		value, set := r.o.Args[name]
		if !set && has {
			made, err := in.word(given)
			if err != nil {
				return i.errorf("%s", err)
			}
			value, set = made, true
		}
		if !set && r.scope != nil {
			value, set = r.global.args[name]
		}
		if !set {
			continue // it has no value, and so it is none
		}
		if err := in.set(in.args, name, value); err != nil {
			return i.errorf("%s", err)
		}
	}
	return nil
}

func (r *reading) env(i instruction) error {
	before := &scope{lex: r.lex, env: maps.Clone(r.scope.env), args: r.scope.args}
	for k := 0; k+1 < len(i.words); k += 3 { // name, value, separator
		name, err := before.word(i.words[k])
		if err != nil {
			return i.errorf("%s", err)
		}
		if !variableName.MatchString(name) {
			return i.errorf("%s is no name of a variable", quoted(name))
		}
		value, err := before.word(i.words[k+1])
		if err == nil {
			err = r.scope.set(r.scope.env, name, value)
		}
		if err != nil {
			return i.errorf("%s", err)
		}
	}
	r.stage.Env = maps.Clone(r.scope.env)
	return nil
}

// absolute is a path as the stage has it.
func (s *Stage) absolute(to string) string {
	if path.IsAbs(to) {
		return path.Clean(to)
	}
	return path.Join(s.dir, to)
}

func (r *reading) workdir(i instruction) error {
	if len(i.words) != 1 {
		return i.errorf("WORKDIR must have one directory")
	}
	dir, err := r.scope.word(i.words[0])
	if err != nil {
		return i.errorf("%s", err)
	}
	if dir == "" {
		return i.errorf("WORKDIR must have one directory")
	}
	r.stage.dir = r.stage.absolute(dir)
	if r.stage.dir != "/" && !r.hidden(r.stage.dir) {
		r.step(i, Step{Directory: r.stage.dir})
	}
	return nil
}

func (r *reading) hidden(dir string) bool {
	return slices.ContainsFunc(r.o.Hidden, func(hidden string) bool {
		hidden = "/" + strings.Trim(hidden, "/")
		return dir == hidden || strings.HasPrefix(dir, hidden+"/")
	})
}

func (r *reading) step(i instruction, s Step) {
	s.Line, s.Text = i.line, Line(i.original)
	r.stage.Steps = append(r.stage.Steps, s)
}

func (r *reading) run(i instruction) error {
	run := &Run{Env: r.scope.all(), Dir: r.stage.dir}
	for _, flag := range i.flags {
		switch flag {
		case "--network=none":
			run.Offline = true
		case "--network=default":
		default:
			return i.errorf("RUN %s is not supported", quoted(flag))
		}
	}
	switch {
	case len(i.words) == 0 || i.words[0] == "":
		return i.errorf("RUN has no command")
	case i.json:
		run.Argv = i.words
	default:
		command, err := withHeredocs(i)
		if err != nil {
			return err
		}
		run.Argv = append(slices.Clone(r.stage.sh), command)
	}
	r.step(i, Step{Run: run})
	return nil
}

var wholeHeredoc = regexp.MustCompile(`^[0-9]*<<-?\s*['"]?[^<'"\s]+['"]?$`)

// withHeredocs is the command of a RUN, as a shell reads it.
func withHeredocs(i instruction) (string, error) {
	command := i.words[0]
	if len(i.heredocs) == 0 {
		return command, nil
	}
	if len(i.heredocs) == 1 && wholeHeredoc.MatchString(strings.TrimSpace(command)) {
		content := i.heredocs[0].Content
		if strings.HasPrefix(content, "#!") {
			return "", i.errorf("RUN of a text that begins with #! is not supported: SHELL names the program")
		}
		return content, nil
	}
	for _, heredoc := range i.heredocs {
		command += "\n" + heredoc.Content + heredoc.Name
	}
	return command, nil
}

func (r *reading) copy(ctx context.Context, i instruction) error {
	c := &Copy{}
	for _, flag := range i.flags {
		name, given, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		value, err := r.scope.word(given)
		switch {
		case err != nil:
		case name == "from" && i.name == command.Copy && value != "":
			c.From, err = r.source(ctx, i, value)
			if err != nil {
				return err
			}
		case name == "chmod":
			mode, bad := strconv.ParseUint(value, 8, 12)
			if bad != nil {
				err = fmt.Errorf("--chmod must be a number such as 755")
			}
			c.Mode = new(fs.FileMode(mode) & fs.ModePerm)
		case name == "chown":
			user, _, _ := strings.Cut(value, ":")
			c.OfUser = user != "" && user != "root" && user != "0"
		case name == "link":
		default:
			err = fmt.Errorf("%s %s is not supported", strings.ToUpper(i.name), quoted(flag))
		}
		if err != nil {
			return i.errorf("%s", err)
		}
	}
	var words []string
	for _, word := range i.words {
		made, err := r.scope.word(word)
		if err != nil {
			return i.errorf("%s", err)
		}
		words = append(words, made)
	}
	if len(words) < 2 || words[len(words)-1] == "" {
		return i.errorf("%s must have sources and a destination", strings.ToUpper(i.name))
	}
	to := words[len(words)-1]
	c.Sources = words[:len(words)-1]
	c.Into = strings.HasSuffix(to, "/") || path.Base(to) == "."
	c.To = r.stage.absolute(to)
	c.Add = i.name == command.Add
	if len(c.Sources) > 1 && !c.Into {
		return i.errorf("the destination %s must end with a slash: there are several sources", quoted(to))
	}
	if r.hidden(c.To) {
		return i.errorf("what is copied to %s is not seen in sandboxes, which have a directory of their own there", quoted(c.To))
	}
	for n, source := range c.Sources {
		if c.Add && (strings.Contains(source, "://") || strings.HasPrefix(source, "git@")) {
			return i.errorf("ADD of %s is not supported: it is not a file of the context", quoted(source))
		}
		// Absolute paths are below the context.
		clean := path.Clean(strings.TrimLeft(source, "/"))
		if source == "" || clean == ".." || strings.HasPrefix(clean, "../") {
			return i.errorf("%s leads out of the context", quoted(source))
		}
		c.Sources[n] = clean
	}
	r.step(i, Step{Copy: c})
	return nil
}

// source is the stage that a COPY --from names: by its name or number, or as an image.
func (r *reading) source(ctx context.Context, i instruction, name string) (*Stage, error) {
	if s := r.named(strings.ToLower(name)); s != nil && s != r.stage {
		return s, nil
	}
	if number, err := strconv.Atoi(name); err == nil {
		var own []*Stage
		for _, s := range r.plan.Stages {
			if r.images[s.Image] != s || s.Image == "" {
				own = append(own, s)
			}
		}
		if number < 0 || number >= len(own)-1 {
			return nil, i.errorf("there is no stage %d above", number)
		}
		return own[number], nil
	}
	if s := r.named(strings.ToLower(name)); s != nil {
		return nil, i.errorf("a stage cannot copy from itself")
	}
	if s := r.images[name]; s != nil {
		return s, nil
	}
	s := &Stage{}
	if err := r.begin(ctx, i, s, name); err != nil {
		return nil, err
	}
	r.images[name] = s
	return s, nil
}

// needed are the stages that one needs, itself last, each after those that it needs.
func needed(last *Stage) (order []*Stage) {
	done := map[*Stage]bool{}
	var visit func(*Stage)
	visit = func(s *Stage) {
		if s == nil || done[s] {
			return
		}
		done[s] = true
		visit(s.From)
		for _, step := range s.Steps {
			if step.Copy != nil {
				visit(step.Copy.From)
			}
		}
		order = append(order, s)
	}
	visit(last)
	return order
}
