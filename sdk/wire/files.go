package wire

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"google.golang.org/protobuf/types/known/timestamppb"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/filechunk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// uncopied is for calls whose messages carry files.
func uncopied() grpc.CallOption { return grpc.ForceCodecV2(filechunk.Codec()) }

// StatFile implements sdk.Files.
func (c *Client) StatFile(ctx context.Context, instanceID, path string) (sdk.FileInfo, error) {
	resp, err := c.files.StatFile(ctx, &providerv1.StatFileRequest{InstanceId: instanceID, Path: path})
	return decodeFile(resp.GetFile(), err)
}

// ListFiles implements sdk.Files.
func (c *Client) ListFiles(ctx context.Context, req sdk.ListFilesRequest, found func([]sdk.FileInfo) error) (bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.files.ListFiles(ctx, &providerv1.ListFilesRequest{
		InstanceId: req.InstanceID, Path: req.Path, Depth: int32(min(req.Depth, 1<<30)), Glob: req.Glob, Limit: int32(min(req.Limit, 1<<30)),
	}, grpc.MaxCallRecvMsgSize(maxPart))
	return receiveList(stream, err, req.Limit, func(m *providerv1.ListFilesResponse) (int, bool, error) {
		files := make([]sdk.FileInfo, 0, len(m.GetFiles()))
		for _, wf := range m.GetFiles() {
			f, err := decodeFile(wf, nil)
			if err != nil {
				return 0, false, err
			}
			files = append(files, f)
		}
		if len(files) == 0 {
			return 0, m.GetTruncated(), nil
		}
		return len(files), m.GetTruncated(), found(files)
	})
}

// receiveList receives messages of a list until its end. take returns how many
// entries a message had and whether it says that there was more.
func receiveList[M any](stream grpc.ServerStreamingClient[M], err error, limit int, take func(*M) (int, bool, error)) (truncated bool, _ error) {
	if err != nil {
		return false, DecodeError(err)
	}
	var quiet silence
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return truncated, nil
		case err != nil:
			return false, DecodeError(err)
		}
		n, more, err := take(m)
		if err == nil {
			err = quiet.broken(n)
		}
		if err != nil {
			return false, err
		}
		if limit -= n; limit < 0 {
			return false, misbehaved("listed more than the limit")
		}
		truncated = truncated || more
	}
}

// ReadFile implements sdk.Files.
func (c *Client) ReadFile(ctx context.Context, req sdk.ReadFileRequest) (sdk.FileInfo, io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.files.ReadFile(ctx, &providerv1.ReadFileRequest{InstanceId: req.InstanceID, Path: req.Path, Offset: req.Offset, Length: req.Length}, uncopied())
	if err == nil {
		var first *providerv1.ReadFileResponse
		if first, err = stream.Recv(); err == nil {
			info, err := decodeFile(first.GetFile(), nil)
			if err != nil {
				cancel()
				return info, nil, err
			}
			return info, newReceived(cancel, stream, filechunk.FieldOfFile), nil
		}
	}
	cancel()
	return sdk.FileInfo{}, nil, DecodeError(err)
}

// WriteFile implements sdk.Files.
func (c *Client) WriteFile(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.files.WriteFile(ctx, uncopied())
	if err != nil {
		return sdk.FileInfo{}, DecodeError(err)
	}
	header := &providerv1.WriteFileHeader{InstanceId: req.InstanceID, Path: req.Path, Mode: uint32(req.Mode.Perm()), MakeParents: req.MakeParents}
	err = upload(content, stream.Send(&providerv1.WriteFileRequest{Part: &providerv1.WriteFileRequest_Header{Header: header}}), stream, filechunk.FieldOfFile)
	if err != nil {
		return sdk.FileInfo{}, err
	}
	resp, err := stream.CloseAndRecv()
	return decodeFile(resp.GetFile(), err)
}

// upload sends content until its end, or until the other side has answered:
// that is told by what CloseAndRecv returns. Its error is content's own.
func upload(content io.Reader, sendErr error, stream grpc.ClientStream, field protowire.Number) error {
	var contentErr error
	if sendErr == nil {
		contentErr, _ = filechunk.SendAll(stream, field, content, true)
	}
	return contentErr
}

// MakeDirectory implements sdk.Files.
func (c *Client) MakeDirectory(ctx context.Context, instanceID, path string, mode fs.FileMode) (sdk.FileInfo, error) {
	resp, err := c.files.MakeDirectory(ctx, &providerv1.MakeDirectoryRequest{InstanceId: instanceID, Path: path, Mode: uint32(mode.Perm())})
	return decodeFile(resp.GetFile(), err)
}

// MoveFile implements sdk.Files.
func (c *Client) MoveFile(ctx context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	resp, err := c.files.MoveFile(ctx, &providerv1.MoveFileRequest{InstanceId: req.InstanceID, From: req.From, To: req.To, Overwrite: req.Overwrite})
	return decodeFile(resp.GetFile(), err)
}

// CopyFile implements sdk.Files.
func (c *Client) CopyFile(ctx context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	resp, err := c.files.CopyFile(ctx, &providerv1.CopyFileRequest{InstanceId: req.InstanceID, From: req.From, To: req.To, Overwrite: req.Overwrite})
	return decodeFile(resp.GetFile(), err)
}

// RemoveFile implements sdk.Files.
func (c *Client) RemoveFile(ctx context.Context, instanceID, path string, recursive bool) error {
	_, err := c.files.RemoveFile(ctx, &providerv1.RemoveFileRequest{InstanceId: instanceID, Path: path, Recursive: recursive})
	return DecodeError(err)
}

// SetFileMode implements sdk.FileModeSetter.
func (c *Client) SetFileMode(ctx context.Context, instanceID, path string, mode fs.FileMode) (sdk.FileInfo, error) {
	resp, err := c.modes.SetFileMode(ctx, &providerv1.SetFileModeRequest{InstanceId: instanceID, Path: path, Mode: uint32(mode.Perm())})
	return decodeFile(resp.GetFile(), err)
}

func decodeFile(wf *providerv1.FileInfo, err error) (sdk.FileInfo, error) {
	if err != nil {
		return sdk.FileInfo{}, DecodeError(err)
	}
	f := sdk.FileInfo{
		Path: wf.GetPath(), Type: sdk.FileType(wf.GetType()), Size: max(wf.GetSize(), 0), Mode: fs.FileMode(wf.GetMode()).Perm(),
		ModifiedAt: decodeTime(wf.GetModifiedAt()), Target: wf.GetTarget(),
	}
	switch {
	case len(f.Path) == 0 || f.Path[0] != '/' || len(f.Path) > maxText || len(f.Target) > maxText:
		return f, misbehaved("answered a path that is not acceptable")
	case f.Type != sdk.FileRegular && f.Type != sdk.FileDirectory && f.Type != sdk.FileSymlink:
		f.Type = sdk.FileOther
	}
	return f, nil
}

// received is a stream of bytes from the plugin.
type received struct {
	*filechunk.Reader
	cancel context.CancelFunc
}

var _ filechunk.Source = (*received)(nil)

func newReceived(cancel context.CancelFunc, stream filechunk.Stream, field protowire.Number) *received {
	receive := filechunk.Receive(stream, field)
	return &received{cancel: cancel, Reader: filechunk.NewReader(func() (mem.BufferSlice, error) {
		data, err := receive()
		if err != nil && !errors.Is(err, io.EOF) {
			err = DecodeError(err)
		}
		return data, err
	})}
}

func (r *received) Close() error {
	r.cancel()
	return nil
}

// EncodeFile encodes what is known of a file.
func EncodeFile(f sdk.FileInfo) *providerv1.FileInfo {
	return &providerv1.FileInfo{
		Path: truncate(f.Path), Type: string(f.Type), Size: f.Size, Mode: uint32(f.Mode.Perm()),
		ModifiedAt: timestamppb.New(f.ModifiedAt), Target: truncate(f.Target),
	}
}
