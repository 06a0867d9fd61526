"""Zero the code of other GPUs in a library's fat binaries: per container, what Hopper does not load."""
import struct, sys
def prune(path, out):
    d=bytearray(open(path,'rb').read()); i=0; kept=0; zeroed=0
    while True:
        i=d.find(b'\x50\xed\x55\xba', i)
        if i<0: break
        magic,ver,hs,size=struct.unpack_from('<IHHQ',d,i)
        if ver!=1 or hs!=16: i+=4; continue
        p=i+hs; end=p+size; es=[]
        while p<end:
            kind,v,ehs,esize=struct.unpack_from('<HHIQ',d,p); sm,=struct.unpack_from('<I',d,p+28)
            es.append((p,ehs,esize,kind,sm)); p+=ehs+esize
        has90=any(k==2 and sm==90 for *_,k,sm in es)
        for p,ehs,esize,k,sm in es:
            keep=(sm==90 and k==2) if has90 else (k==1 and sm<=90)
            if keep: kept+=esize
            else: d[p+ehs:p+ehs+esize]=bytes(esize); zeroed+=esize
        i=end
    open(out,'wb').write(d); print(path,kept/2**20,zeroed/2**20)
if __name__=='__main__': prune(sys.argv[1],sys.argv[2])
