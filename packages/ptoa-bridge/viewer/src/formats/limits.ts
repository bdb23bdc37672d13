/** Limits on a stranger's data (FORMATS.md): past these it is refused before memory is spent on it. */
export const MAX_DEPTH = 64;
export const MAX_BLOCKS = 100_000;
export const MAX_INFLATED_BYTES = 4 * 1024 * 1024;
export const MAX_FILE_BYTES = 512 * 1024 * 1024;
export const MAX_LINE_BYTES = 64 * 1024 * 1024;
export const MAX_PATTERN = 32;
export const MAX_TENSOR_AXES = 32;
