package main

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"math"

	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var (
	_ sdk.Commands      = (*provider)(nil)
	_ sdk.Files         = (*provider)(nil)
	_ sdk.Contexts      = (*provider)(nil)
	_ sdk.PauseReleaser = (*provider)(nil)
)

// StartCommand implements sdk.Commands.
func (p *provider) StartCommand(ctx context.Context, req sdk.CommandRequest) (sdk.Command, error) {
	var started cloud.Command
	err := p.call(ctx, "start", cloud.InsideRequest{Instance: req.InstanceID, Argv: req.Argv, Stdin: req.Stdin}, &started)
	return commandOf(started), err
}

// ListCommands implements sdk.Commands.
func (p *provider) ListCommands(ctx context.Context, instanceID string) ([]sdk.Command, error) {
	var all []cloud.Command
	if err := p.call(ctx, "commands", cloud.InsideRequest{Instance: instanceID}, &all); err != nil {
		return nil, err
	}
	list := make([]sdk.Command, 0, len(all))
	for _, one := range all {
		list = append(list, commandOf(one))
	}
	return list, nil
}

// ReadCommand implements sdk.Commands. A command prints its token when it is started, and a
// shell when it reads.
func (p *provider) ReadCommand(ctx context.Context, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
	var found cloud.Command
	for _, wait := range []bool{false, true} {
		err := p.call(ctx, "command", cloud.InsideRequest{Instance: req.InstanceID, ID: req.CommandID, Wait: wait}, &found)
		if err != nil {
			return sdk.Command{}, err
		}
		if printed := printedBy(found); req.StdoutOffset < int64(len(printed)) && (found.Shell || found.Ended() || wait || !req.Follow) {
			if err := out(sdk.CommandOutput{Stream: sdk.Stdout, Offset: req.StdoutOffset, Data: printed[req.StdoutOffset:]}); err != nil {
				return sdk.Command{}, err
			}
			req.StdoutOffset = int64(len(printed))
		}
		if !req.Follow || found.Ended() {
			break
		}
	}
	return commandOf(found), nil
}

// WriteCommand implements sdk.Commands: shells read, and no other command of this cloud.
func (p *provider) WriteCommand(ctx context.Context, instanceID, commandID string, data []byte, _ bool) error {
	return p.call(ctx, "type", cloud.InsideRequest{Instance: instanceID, ID: commandID, Content: data}, nil)
}

// ResizeCommand implements sdk.Commands: no command of this cloud has a terminal.
func (p *provider) ResizeCommand(context.Context, string, string, sdk.TerminalSize) error {
	return sdk.Errorf(sdk.CodeConflict, "the command has no terminal")
}

// SignalCommand implements sdk.Commands. Every signal ends a command.
func (p *provider) SignalCommand(ctx context.Context, instanceID, commandID, _ string) error {
	return p.call(ctx, "signal", cloud.InsideRequest{Instance: instanceID, ID: commandID}, nil)
}

func printedBy(c cloud.Command) []byte {
	if c.Shell {
		return c.Printed
	}
	return []byte(c.Token + "\n")
}

func commandOf(c cloud.Command) sdk.Command {
	command := sdk.Command{
		ID: c.ID, Argv: c.Argv, Cwd: "/workspace", State: sdk.CommandRunning, StartedAt: c.Started, StdoutBytes: int64(len(printedBy(c))),
	}
	if c.Ended() {
		command.State, command.EndedAt = sdk.CommandSucceeded, c.Ends
	}
	if c.Killed {
		command.State, command.ExitCode = sdk.CommandCancelled, 128+9
	}
	return command
}

// StatFile implements sdk.Files.
func (p *provider) StatFile(ctx context.Context, instanceID, path string) (sdk.FileInfo, error) {
	file, err := p.file(ctx, instanceID, path)
	return infoOf(file), err
}

func (p *provider) file(ctx context.Context, instanceID, path string) (file cloud.File, err error) {
	return file, p.call(ctx, "read", cloud.InsideRequest{Instance: instanceID, Path: path}, &file)
}

func infoOf(f cloud.File) sdk.FileInfo {
	if f.Directory {
		return sdk.FileInfo{Path: f.Path, Type: sdk.FileDirectory, Mode: 0o755, ModifiedAt: f.Written}
	}
	return sdk.FileInfo{Path: f.Path, Type: sdk.FileRegular, Size: int64(len(f.Content)), Mode: 0o644, ModifiedAt: f.Written}
}

// ReadFile implements sdk.Files.
func (p *provider) ReadFile(ctx context.Context, req sdk.ReadFileRequest) (sdk.FileInfo, io.ReadCloser, error) {
	file, err := p.file(ctx, req.InstanceID, req.Path)
	if err != nil {
		return sdk.FileInfo{}, nil, err
	}
	if file.Directory {
		return sdk.FileInfo{}, nil, sdk.Errorf(sdk.CodeConflict, "it is a directory")
	}
	from, length := req.Offset, req.Length
	if from < 0 {
		from += int64(len(file.Content))
	}
	if length == 0 {
		length = math.MaxInt64
	}
	part := io.NewSectionReader(bytes.NewReader(file.Content), max(0, from), length)
	return infoOf(file), io.NopCloser(part), nil
}

// maxFile bounds what is written, in bytes.
const maxFile = 1 << 20

// WriteFile implements sdk.Files. The cloud is asked when all has come.
func (p *provider) WriteFile(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
	all, err := io.ReadAll(io.LimitReader(content, maxFile+1))
	if err != nil {
		return sdk.FileInfo{}, err
	}
	if len(all) > maxFile {
		return sdk.FileInfo{}, sdk.Errorf(sdk.CodeQuotaExceeded, "a file has %d bytes at most", maxFile)
	}
	var written cloud.File
	err = p.call(ctx, "write", cloud.InsideRequest{Instance: req.InstanceID, Path: req.Path, Content: all}, &written)
	return infoOf(written), err
}

// errFlat is what all else that can be asked of files is answered with.
var errFlat = sdk.Errorf(sdk.CodeNotSupported, "the cloud writes files, reads them and makes directories, and does nothing else with them")

// ListFiles implements sdk.Files.
func (p *provider) ListFiles(context.Context, sdk.ListFilesRequest, func([]sdk.FileInfo) error) (bool, error) {
	return false, errFlat
}

// MakeDirectory implements sdk.Files.
func (p *provider) MakeDirectory(ctx context.Context, instanceID, path string, _ fs.FileMode) (sdk.FileInfo, error) {
	var made cloud.File
	err := p.call(ctx, "mkdir", cloud.InsideRequest{Instance: instanceID, Path: path}, &made)
	return infoOf(made), err
}

// MoveFile implements sdk.Files.
func (p *provider) MoveFile(context.Context, sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return sdk.FileInfo{}, errFlat
}

// CopyFile implements sdk.Files.
func (p *provider) CopyFile(context.Context, sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return sdk.FileInfo{}, errFlat
}

// RemoveFile implements sdk.Files.
func (p *provider) RemoveFile(context.Context, string, string, bool) error { return errFlat }

// CreateContext implements sdk.Contexts.
func (p *provider) CreateContext(ctx context.Context, req sdk.CreateContextRequest) (sdk.CodeContext, error) {
	var made cloud.Context
	err := p.call(ctx, "context", cloud.InsideRequest{Instance: req.InstanceID, Language: string(req.Language)}, &made)
	return contextOf(made), err
}

// ListContexts implements sdk.Contexts.
func (p *provider) ListContexts(ctx context.Context, instanceID string) ([]sdk.CodeContext, error) {
	var all []cloud.Context
	if err := p.call(ctx, "contexts", cloud.InsideRequest{Instance: instanceID}, &all); err != nil {
		return nil, err
	}
	list := make([]sdk.CodeContext, 0, len(all))
	for _, one := range all {
		list = append(list, contextOf(one))
	}
	return list, nil
}

func contextOf(c cloud.Context) sdk.CodeContext {
	return sdk.CodeContext{ID: c.ID, Language: sdk.Language(c.Language), Cwd: "/workspace", CreatedAt: c.Created}
}

// RestartContext implements sdk.Contexts. Contexts of this cloud have nothing to forget.
func (p *provider) RestartContext(ctx context.Context, instanceID, contextID string) error {
	all, err := p.ListContexts(ctx, instanceID)
	if err != nil {
		return err
	}
	for _, one := range all {
		if one.ID == contextID {
			return nil
		}
	}
	return sdk.FieldErrorf(sdk.CodeNotFound, "context_id", "no such context")
}

// DeleteContext implements sdk.Contexts.
func (p *provider) DeleteContext(ctx context.Context, instanceID, contextID string) error {
	return p.call(ctx, "forget", cloud.InsideRequest{Instance: instanceID, ID: contextID}, nil)
}

// Pause implements sdk.Pauser.
func (p *provider) Pause(ctx context.Context, instanceID string) error {
	return p.call(ctx, "pause", cloud.InsideRequest{Instance: instanceID}, nil)
}

// PauseReleasing implements sdk.PauseReleaser: what is paused is none of what runs.
func (p *provider) PauseReleasing(ctx context.Context, instanceID string) (released bool, err error) {
	err = p.Pause(ctx, instanceID)
	return err == nil, err
}

// Resume implements sdk.Pauser.
func (p *provider) Resume(ctx context.Context, instanceID string) error {
	return p.call(ctx, "resume", cloud.InsideRequest{Instance: instanceID}, nil)
}
