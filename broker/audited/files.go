package audited

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"io/fs"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func (p *provider) WriteFile(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (info sdk.FileInfo, err error) {
	e := p.recorder.effect(ctx, OpWriteFile, req.InstanceID)
	e.Path = req.Path
	err = p.recorder.record(ctx, e, func(o *audit.Outcome) (err error) {
		sum := newSumming(content)
		info, err = p.client.WriteFile(ctx, req, sum)
		sum.tell(o)
		return err
	})
	return info, err
}

func (p *provider) WriteArchive(ctx context.Context, instanceID, directory string, content io.Reader) (summary sdk.ArchiveSummary, err error) {
	e := p.recorder.effect(ctx, OpWriteArchive, instanceID)
	e.Path = directory
	err = p.recorder.record(ctx, e, func(o *audit.Outcome) (err error) {
		sum := newSumming(content)
		summary, err = p.client.WriteArchive(ctx, instanceID, directory, sum)
		sum.tell(o)
		return err
	})
	return summary, err
}

func (p *provider) MakeDirectory(ctx context.Context, instanceID, path string, mode fs.FileMode) (info sdk.FileInfo, err error) {
	e := p.recorder.effect(ctx, OpMakeDirectory, instanceID)
	e.Path = path
	err = p.recorder.record(ctx, e, func(*audit.Outcome) (err error) {
		info, err = p.client.MakeDirectory(ctx, instanceID, path, mode)
		return err
	})
	return info, err
}

func (p *provider) SetFileMode(ctx context.Context, instanceID, path string, mode fs.FileMode) (info sdk.FileInfo, err error) {
	e := p.recorder.effect(ctx, OpSetFileMode, instanceID)
	e.Path = path
	err = p.recorder.record(ctx, e, func(*audit.Outcome) (err error) {
		info, err = p.client.SetFileMode(ctx, instanceID, path, mode)
		return err
	})
	return info, err
}

func (p *provider) MoveFile(ctx context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return p.move(ctx, OpMoveFile, req, p.client.MoveFile)
}

func (p *provider) CopyFile(ctx context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return p.move(ctx, OpCopyFile, req, p.client.CopyFile)
}

func (p *provider) move(ctx context.Context, operation string, req sdk.MoveFileRequest, call func(context.Context, sdk.MoveFileRequest) (sdk.FileInfo, error)) (info sdk.FileInfo, err error) {
	e := p.recorder.effect(ctx, operation, req.InstanceID)
	e.Path, e.To = req.From, req.To
	err = p.recorder.record(ctx, e, func(*audit.Outcome) (err error) {
		info, err = call(ctx, req)
		return err
	})
	return info, err
}

func (p *provider) RemoveFile(ctx context.Context, instanceID, path string, recursive bool) error {
	e := p.recorder.effect(ctx, OpRemoveFile, instanceID)
	e.Path = path
	return p.recorder.record(ctx, e, func(*audit.Outcome) error {
		return p.client.RemoveFile(ctx, instanceID, path, recursive)
	})
}

func (p *provider) ReplaceInFiles(ctx context.Context, req sdk.ReplaceInFilesRequest) (replaced []sdk.FileReplacement, err error) {
	e := p.recorder.effect(ctx, OpReplaceInFiles, req.InstanceID)
	e.Paths = req.Paths
	err = p.recorder.record(ctx, e, func(*audit.Outcome) (err error) {
		replaced, err = p.client.ReplaceInFiles(ctx, req)
		return err
	})
	return replaced, err
}

// summing counts what is read through it, and sums it up.
type summing struct {
	from io.Reader
	sum  hash.Hash
	size int64
}

func newSumming(from io.Reader) *summing { return &summing{from: from, sum: sha256.New()} }

func (s *summing) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	s.sum.Write(p[:n])
	s.size += int64(n)
	return n, err
}

// tell puts what was read into an outcome.
func (s *summing) tell(o *audit.Outcome) {
	o.Bytes, o.Hash = &s.size, "sha256:"+hex.EncodeToString(s.sum.Sum(nil))
}
