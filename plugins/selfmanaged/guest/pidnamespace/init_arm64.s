#include "textflag.h"

// func startInit(flags uintptr, orders *orders) (pid, errno uintptr)
TEXT ·startInit(SB), NOSPLIT, $0-32
	MOVD	orders+8(FP), R19 // kept by system calls
	MOVD	flags+0(FP), R0
	MOVD	ZR, R1 // the caller's stack, which the clone leaves alone
	MOVD	ZR, R2
	MOVD	ZR, R3
	MOVD	ZR, R4
	MOVD	$220, R8 // clone
	SVC
	CBZ	R0, clone
	CMN	$4095, R0
	BCC	cloned
	NEG	R0, R0
	MOVD	ZR, pid+16(FP)
	MOVD	R0, errno+24(FP)
	RET
cloned:
	MOVD	R0, pid+16(FP)
	MOVD	ZR, errno+24(FP)
	RET
clone:
	MOVD	$17, R0 // SIGCHLD
	MOVD	R19, R1
	MOVD	ZR, R2
	MOVD	$8, R3
	MOVD	$134, R8 // rt_sigaction
	SVC
	ADD	$32, R19
next:
	MOVD	0(R19), R8
	CMN	$1, R8
	BEQ	sleep
	MOVD	8(R19), R0
	MOVD	16(R19), R1
	MOVD	24(R19), R2
	MOVD	32(R19), R3
	MOVD	40(R19), R4
	SVC
	MOVD	R0, 0(R19)
	ADD	$48, R19
	B	next
sleep:
	MOVD	ZR, R0
	MOVD	ZR, R1
	MOVD	ZR, R2
	MOVD	ZR, R3
	MOVD	ZR, R4
	MOVD	$73, R8 // ppoll, of nothing and for ever
	SVC
	B	sleep
